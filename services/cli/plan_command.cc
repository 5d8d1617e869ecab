#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "common/base/byte_size.h"
#include "common/model_config/layer_loads.h"
#include "common/model_config/model_config.h"
#include "common/model_config/plan_experts.h"
#include "common/model_config/rank_heads.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_file.h"
#include "services/cli/arguments.h"
#include "services/cli/command_table.h"
#include "services/cli/commands.h"
#include "services/cli/stage_table.h"

namespace sluice::cli {
namespace {

constexpr char kPlanUsage[] =
    "usage: sluice plan MODEL [--hosts NAME=HOST:PORT[:BYTES],... "
    "[--replicas R] [--local-bytes BYTES] [--out FILE]] [--stages N] "
    "[--stage-memory BYTES,...] [--placement FILE] [--kv-blocks B] "
    "[--max-context N] [--max-step-tokens N] [--ranks R] "
    "[--weights auto|bf16|f32]; --hosts, --stages or both; BYTES may end in "
    "K, M, G or T, powers of 1024";

// Options that change nothing where no layers are split.
constexpr const char* kOfStages[] = {"placement",       "kv-blocks",
                                     "weights",         "max-context",
                                     "max-step-tokens", "ranks"};

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

// The placement that --hosts asks for.
StatusOr<ExpertPlacement> PlanHosts(const Arguments& arguments,
                                    const ModelConfig& config,
                                    const ModelBytes& bytes) {
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
  return PlanExperts(config, bytes, options);
}

// Writes a placement where --out says.
Status WritePlacement(const ExpertPlacement& placement,
                      const std::string& path) {
  const std::string text = ToText(placement);
  if (path.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) return Unavailable("--out ", path, " cannot be written");
  }
  return OkStatus();
}

// What an option says, 0 if it is not given; within 1 to `most`.
StatusOr<int32_t> Number(const Arguments& arguments, const std::string& name,
                         int64_t most) {
  SLUICE_ASSIGN_OR_RETURN(const auto value, arguments.Int(name));
  if (!value.has_value()) return 0;
  if (*value >= 1 && *value <= most) return static_cast<int32_t>(*value);
  return InvalidArgument("--", name, " must be between 1 and ", most, ", got ",
                         *value);
}

// How the layers are split over stages, experts of `placement` left out.
StatusOr<std::string> PlanStages(const Arguments& arguments,
                                 const ModelConfig& config,
                                 const weights::ModelFile& model,
                                 const ExpertPlacement& placement) {
  LayerLoadOptions options;
  options.placement = &placement;
  SLUICE_ASSIGN_OR_RETURN(
      options.weights,
      ParseWeightsMode(arguments.String("weights").value_or("auto")));
  SLUICE_ASSIGN_OR_RETURN(options.kv_blocks,
                          Number(arguments, "kv-blocks", kMaxKvBlocks));
  SLUICE_ASSIGN_OR_RETURN(
      options.max_context,
      Number(arguments, "max-context",
             std::min(config.max_position_embeddings, kMaxContext)));
  SLUICE_ASSIGN_OR_RETURN(
      const int32_t step,
      Number(arguments, "max-step-tokens", kMostStepTokens));
  if (step > 0) options.max_step_tokens = step;
  SLUICE_ASSIGN_OR_RETURN(const int32_t ranks,
                          Number(arguments, "ranks", NumShards(config)));
  if (ranks > 0) options.ranks = ranks;
  auto memory = ParseBytesList(arguments.String("stage-memory").value_or(""));
  if (!memory.ok()) return Annotate(memory.status(), "--stage-memory");
  SLUICE_ASSIGN_OR_RETURN(const auto stages, arguments.Int("stages"));
  const int64_t num_stages =
      stages.value_or(static_cast<int64_t>(memory->size()));
  return StageTable(
      LoadsOf(config, model, options),
      static_cast<int32_t>(std::clamp<int64_t>(num_stages, -1, INT32_MAX)),
      *memory);
}

// Refuses options without effect.
Status CheckTogether(const Arguments& arguments, bool split) {
  const bool hosts = arguments.Has("hosts");
  if (hosts && arguments.Has("placement")) {
    return InvalidArgument("--hosts makes a placement: --placement cannot be ",
                           "given with it");
  }
  for (const char* name : {"replicas", "local-bytes", "out"}) {
    if (arguments.Has(name) && !hosts) {
      return InvalidArgument("--", name, " goes with --hosts");
    }
  }
  for (const char* name : kOfStages) {
    if (arguments.Has(name) && !split) {
      return InvalidArgument("--", name, " goes with --stages");
    }
  }
  return OkStatus();
}

}  // namespace

Status RunPlan(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          ParseArguments("plan", words));
  const bool split = arguments.Has("stages") || arguments.Has("stage-memory");
  if (arguments.words().size() != 1 || (!arguments.Has("hosts") && !split)) {
    return InvalidArgument(kPlanUsage);
  }
  SLUICE_RETURN_IF_ERROR(CheckTogether(arguments, split));
  SLUICE_ASSIGN_OR_RETURN(const auto model,
                          weights::OpenModel(arguments.words()[0]));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  const bool hosts = arguments.Has("hosts");
  const ModelBytes bytes = StoredBytes(config, *model);
  ExpertPlacement placement;
  if (hosts) {
    SLUICE_ASSIGN_OR_RETURN(placement, PlanHosts(arguments, config, bytes));
  } else if (arguments.Has("placement")) {
    SLUICE_ASSIGN_OR_RETURN(
        placement, ReadExpertPlacement(*arguments.String("placement"), config));
  }
  std::string table;
  if (split) {
    SLUICE_ASSIGN_OR_RETURN(table,
                            PlanStages(arguments, config, *model, placement));
  }
  // Nothing is written of a plan that cannot be.
  if (hosts) {
    SLUICE_RETURN_IF_ERROR(
        WritePlacement(placement, arguments.String("out").value_or("")));
    Tell(config, bytes, placement);
  }
  // With --hosts stdout has the placement.
  std::fputs(table.c_str(), hosts ? stderr : stdout);
  return OkStatus();
}

}  // namespace sluice::cli
