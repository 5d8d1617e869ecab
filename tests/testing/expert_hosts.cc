#include "tests/testing/expert_hosts.h"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <utility>

#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"

namespace sluice::testing {
namespace {

constexpr auto kLoadTime = std::chrono::seconds(60);

std::string HostName(int index) {
  return std::string(1, static_cast<char>('a' + index));
}

StatusOr<ExpertPlacement> Place(const ExpertHostsOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const auto file, OpenModel(options.model));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(file->config()));
  const int32_t eighth = config.moe().num_experts / 8;
  std::string text = "{\"hosts\": [";
  for (int i = 0; i < options.hosts; ++i) {
    text += Cat(i == 0 ? "" : ",", "{\"name\": \"", HostName(i), "\"}");
  }
  text += "], \"experts\": [";
  for (const PlacedEighths& entry : options.entries) {
    text += Cat(text.back() == '[' ? "" : ",", "{\"layers\": \"",
                SparseSpan(config).first, "-", SparseSpan(config).last,
                "\", \"experts\": \"", entry.first * eighth, "-",
                (entry.last + 1) * eighth - 1, "\", \"hosts\": [");
    if (entry.hosts.empty()) text += "\"local\"";
    for (size_t i = 0; i < entry.hosts.size(); ++i) {
      text += Cat(i == 0 ? "\"" : ",\"", entry.hosts[i], "\"");
    }
    text += "]}";
  }
  return ParseExpertPlacement(text + "]}", config);
}

}  // namespace

ExpertHosts::ExpertHosts(ExpertHostsOptions options)
    : options_(std::move(options)) {
  static std::atomic<int> count{0};
  file_ = (std::filesystem::temp_directory_path() /
           Cat("sluice-placement-", ::getpid(), "-", count++, ".json"))
              .string();
}

ExpertHosts::~ExpertHosts() {
  servers_.clear();
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

StatusOr<std::unique_ptr<ExpertHosts>> ExpertHosts::Start(
    ExpertHostsOptions options) {
  std::unique_ptr<ExpertHosts> hosts(new ExpertHosts(std::move(options)));
  SLUICE_ASSIGN_OR_RETURN(hosts->placement_, Place(hosts->options_));
  SLUICE_RETURN_IF_ERROR(hosts->WritePlacement());
  for (int i = 0; i < hosts->options_.hosts; ++i) {
    SLUICE_ASSIGN_OR_RETURN(auto server, hosts->StartHost(i, "127.0.0.1:0"));
    hosts->placement_.hosts[i].address = server->address();
    hosts->servers_.push_back(std::move(server));
  }
  SLUICE_RETURN_IF_ERROR(hosts->WritePlacement());
  return hosts;
}

Status ExpertHosts::WritePlacement() {
  std::ofstream out(file_, std::ios::trunc);
  out << ToText(placement_);
  out.close();
  return out ? OkStatus() : Unavailable(file_, " cannot be written");
}

StatusOr<std::unique_ptr<expert::ExpertServer>> ExpertHosts::StartHost(
    int index, const std::string& listen) {
  expert::ExpertServerOptions options;
  options.listen = listen;
  options.choice.placement = file_;
  options.choice.host = HostName(index);
  options.experts.model_path = options_.model;
  options.experts.weights = options_.weights;
  options.experts.threads = 1;
  if (static_cast<size_t>(index) < options_.delays.size()) {
    options.debug_batch_delay = options_.delays[index];
  }
  if (static_cast<size_t>(index) < options_.max_rows.size()) {
    options.max_rows = options_.max_rows[index];
  }
  SLUICE_ASSIGN_OR_RETURN(auto server,
                          expert::ExpertServer::Start(std::move(options)));
  SLUICE_RETURN_IF_ERROR(server->WaitLoaded(Clock::now() + kLoadTime));
  return server;
}

void ExpertHosts::Stop(int index) { servers_[index].reset(); }

Status ExpertHosts::Restart(int index) {
  SLUICE_ASSIGN_OR_RETURN(
      servers_[index],
      StartHost(index, placement_.hosts[static_cast<size_t>(index)].address));
  return OkStatus();
}

}  // namespace sluice::testing
