#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "common/model/model_config.h"
#include "common/model/plan_experts.h"
#include "common/weights/model_file.h"
#include "services/cli/arguments.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

constexpr char kPlanUsage[] =
    "usage: sluice plan MODEL --hosts NAME=HOST:PORT[:BYTES],... "
    "[--replicas R] [--local-bytes BYTES] [--out FILE]; BYTES may end in K, "
    "M, G or T, powers of 1024";

StatusOr<uint64_t> ParseBytes(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  const std::string_view rest(parsed.ptr,
                              static_cast<size_t>(end - parsed.ptr));
  const size_t power =
      rest.empty() ? 0 : std::string_view("KMGT").find(rest) + 1;
  const bool fits = parsed.ec == std::errc() && rest.size() <= 1 &&
                    power <= 4 && value < (uint64_t{1} << (62 - 10 * power));
  if (fits && value > 0) return value << (10 * power);
  return InvalidArgument(
      "bytes must be a positive number, K, M, G or T behind "
      "it or not, got '",
      text, "'");
}

// NAME=HOST:PORT or NAME=HOST:PORT:BYTES.
StatusOr<HostRoom> ParseHost(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return InvalidArgument("--hosts: '", text, "' has no '='; ", kPlanUsage);
  }
  HostRoom room;
  room.host.name = text.substr(0, equals);
  room.host.address = text.substr(equals + 1);
  // Colons of an IPv6 address stand in brackets.
  const size_t bracket = room.host.address.rfind(']');
  const size_t from = bracket == std::string::npos ? 0 : bracket;
  const size_t port = room.host.address.find(':', from);
  const size_t bytes =
      port == std::string::npos ? port : room.host.address.find(':', port + 1);
  if (bytes != std::string::npos) {
    auto size =
        ParseBytes(std::string_view(room.host.address).substr(bytes + 1));
    if (!size.ok()) {
      return Annotate(size.status(), "--hosts: ", room.host.name);
    }
    room.bytes = *size;
    room.host.address.resize(bytes);
  }
  return room;
}

StatusOr<std::vector<HostRoom>> ParseHosts(const std::string& text) {
  std::vector<HostRoom> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    SLUICE_ASSIGN_OR_RETURN(HostRoom host,
                            ParseHost(text.substr(begin, end - begin)));
    hosts.push_back(std::move(host));
    begin = end + 1;
  }
  return hosts;
}

// Who has how much, for people; the placement itself is on stdout.
void Tell(const ModelConfig& config, const ModelBytes& bytes,
          const ExpertPlacement& placement) {
  const auto of_layer = [&](size_t layer, int64_t experts) {
    return bytes.experts[layer] /
           static_cast<uint64_t>(config.moe.num_experts) *
           static_cast<uint64_t>(experts);
  };
  uint64_t local = 0;
  std::vector<uint64_t> on(placement.hosts.size());
  for (size_t i = 0; i < placement.layers.size(); ++i) {
    for (const PlacedExperts& run : placement.layers[i]) {
      const uint64_t size = of_layer(i, run.experts.size());
      if (run.hosts.empty()) local += size;
      for (const int32_t host : run.hosts)
        on[static_cast<size_t>(host)] += size;
    }
  }
  for (size_t i = 0; i < on.size(); ++i) {
    std::fprintf(stderr, "%-24s %14.2f MB\n", placement.hosts[i].name.c_str(),
                 double(on[i]) * 1e-6);
  }
  std::fprintf(stderr, "%-24s %14.2f MB\n", "on the stages",
               double(local) * 1e-6);
}

}  // namespace

Status RunPlan(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(
      const Arguments arguments,
      Arguments::Parse(words, {"hosts", "replicas", "local-bytes", "out"}, {}));
  if (arguments.words().size() != 1 || !arguments.Has("hosts")) {
    return InvalidArgument(kPlanUsage);
  }
  ExpertPlanOptions options;
  SLUICE_ASSIGN_OR_RETURN(options.hosts,
                          ParseHosts(*arguments.String("hosts")));
  SLUICE_ASSIGN_OR_RETURN(const auto replicas, arguments.Int("replicas"));
  options.replicas = static_cast<int32_t>(
      std::clamp<int64_t>(replicas.value_or(1), -1, INT32_MAX));
  if (arguments.Has("local-bytes") && *arguments.String("local-bytes") != "0") {
    auto local = ParseBytes(*arguments.String("local-bytes"));
    if (!local.ok()) return Annotate(local.status(), "--local-bytes");
    options.local_bytes = *local;
  }
  SLUICE_ASSIGN_OR_RETURN(const auto model,
                          weights::OpenModel(arguments.words()[0]));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  const ModelBytes bytes = StoredBytes(config, *model);
  SLUICE_ASSIGN_OR_RETURN(const ExpertPlacement placement,
                          PlanExperts(config, bytes, options));
  const std::string text = ToText(placement);
  const std::string path = arguments.String("out").value_or("");
  if (path.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) return Unavailable("--out ", path, " cannot be written");
  }
  Tell(config, bytes, placement);
  return OkStatus();
}

}  // namespace sluice::cli
