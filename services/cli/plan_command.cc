#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/byte_size.h"
#include "common/base/text_file.h"
#include "common/model_config/described_model.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/model_config.h"
#include "common/model_config/rank_plan.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/layer_loads.h"
#include "common/placement/plan_experts.h"
#include "common/weights/model_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/model_tables.h"
#include "services/cli/plan_cluster.h"
#include "services/cli/plan_source.h"

namespace sluice::cli {
namespace {

struct PlanOptions {
  std::string hosts, local_bytes, out, placement;
  PlannedModel model;
  std::optional<int64_t> replicas, stages;
  std::vector<uint64_t> stage_memory;
  LayerLoadOptions loads;
  std::optional<int32_t> step_tokens;  // of `loads`, if given
  ClusterPlanOptions cluster;
  bool split() const { return stages || !stage_memory.empty(); }
};

// Parses NAME=HOST:PORT or NAME=HOST:PORT:BYTES.
StatusOr<HostRoom> ParseHost(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return InvalidArgument("--hosts: '", text, "' has no '='");
  }
  HostRoom room;
  room.host.name = text.substr(0, equals);
  room.host.address = text.substr(equals + 1);
  // Brackets enclose the colons of an IPv6 address.
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

// Prints each host's share to stderr; stdout has the placement.
void Tell(const ModelConfig& config, const ModelBytes& bytes,
          const ExpertPlacement& placement) {
  const auto of_layer = [&](size_t layer, int64_t experts) {
    return bytes.experts[layer] /
           static_cast<uint64_t>(config.moe().num_experts) *
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

// Returns the placement for --hosts.
StatusOr<ExpertPlacement> PlanHosts(const PlanOptions& given,
                                    const ModelConfig& config,
                                    const ModelBytes& bytes) {
  ExpertPlanOptions options;
  SLUICE_ASSIGN_OR_RETURN(options.hosts, ParseHosts(given.hosts));
  options.replicas = static_cast<int32_t>(
      std::clamp<int64_t>(given.replicas.value_or(1), -1, INT32_MAX));
  if (!given.local_bytes.empty() && given.local_bytes != "0") {
    auto local = ParseBytes(given.local_bytes);
    if (!local.ok()) return Annotate(local.status(), "--local-bytes");
    options.local_bytes = *local;
  }
  return PlanExperts(config, bytes, options);
}

// Returns the split of layers over stages, without the experts of `placement`.
StatusOr<std::string> PlanStages(const PlanOptions& options,
                                 const ModelConfig& config,
                                 const weights::ModelFile& model,
                                 const ExpertPlacement& placement) {
  LayerLoadOptions loads = options.loads;
  loads.placement = &placement;
  loads.max_step_tokens = options.step_tokens.value_or(loads.max_step_tokens);
  SLUICE_RETURN_IF_ERROR(CheckKvType(
      config, KvTypeOf(loads.kv_type, config, model, loads.weights)));
  const int32_t context = std::min(config.max_position_embeddings, kMaxContext);
  if (loads.max_context > context) {
    return InvalidArgument("--max-context: must be between 1 and ", context,
                           ", got ", loads.max_context);
  }
  const int32_t most =
      MostRanks(config, ColumnFormatsOf(config, model, loads.weights));
  if (loads.ranks > most) {
    return InvalidArgument("--ranks: must be between 1 and ", most, ", got ",
                           loads.ranks);
  }
  const int64_t stages = options.stages.value_or(
      static_cast<int64_t>(options.stage_memory.size()));
  return StageTable(
      LoadsOf(config, model, loads),
      static_cast<int32_t>(std::clamp<int64_t>(stages, -1, INT32_MAX)),
      options.stage_memory);
}

// Plans with machines; refuses options that the machines' file answers.
Status RunMachines(const PlanOptions& options) {
  if (!options.hosts.empty() || !options.placement.empty() ||
      !options.stage_memory.empty() || options.loads.max_context > 0) {
    return InvalidArgument(
        "--hosts, --placement, --stage-memory and --max-context do not go with "
        "machines; --context is the tokens of a sequence");
  }
  const auto stages =
      std::clamp<int64_t>(options.stages.value_or(0), -1, INT32_MAX);
  if (options.stages && stages < 1) {
    return InvalidArgument("--stages: must be positive, got ", stages);
  }
  LayerLoadOptions loads = options.loads;
  loads.max_step_tokens = options.step_tokens.value_or(0);
  return RunClusterPlan(options.model, options.cluster, loads,
                        static_cast<int32_t>(stages));
}

Status RunPlan(PlanOptions options) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<ModelHeaders> headers,
                          FindPlanned(options.model));
  if (options.cluster.given()) return RunMachines(options);
  const bool hosts = !options.hosts.empty();
  if (!hosts && !options.split()) {
    return InvalidArgument(
        "--machines, --machine, --hosts, --stages or --stage-memory is "
        "needed; ",
        "sluice plan --help lists the options");
  }
  SLUICE_ASSIGN_OR_RETURN(
      const auto model,
      DescribeModel(options.model.path, options.model.stored));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  const ModelBytes bytes = StoredBytes(config, *model);
  ExpertPlacement placement;
  if (hosts) {
    SLUICE_ASSIGN_OR_RETURN(placement, PlanHosts(options, config, bytes));
  } else if (!options.placement.empty()) {
    SLUICE_ASSIGN_OR_RETURN(placement,
                            ReadExpertPlacement(options.placement, config));
  }
  std::string table;
  if (options.split()) {
    SLUICE_ASSIGN_OR_RETURN(table,
                            PlanStages(options, config, *model, placement));
  }
  // An impossible split writes no placement.
  if (hosts && options.out.empty()) {
    std::fputs(ToText(placement).c_str(), stdout);
  } else if (hosts) {
    SLUICE_RETURN_IF_ERROR(WriteTextFile(options.out, ToText(placement)));
  }
  if (hosts) Tell(config, bytes, placement);
  // With --hosts stdout has the placement.
  std::fputs(table.c_str(), hosts ? stderr : stdout);
  return OkStatus();
}

// Sets what --weights says: what is computed with, or a type that the files
// are taken to have.
Status SetWeights(const std::string& name, PlanOptions& options) {
  options.model.weights = name;
  const auto mode = ParseWeightsMode(name);
  if (mode.ok()) {
    options.loads.weights = *mode;
    return OkStatus();
  }
  const auto stored = ParseStoredType(name);
  if (!stored.ok()) return stored.status();
  options.model.stored = *stored;
  return OkStatus();
}

// Adds the options that need a split of layers.
void AddStageOptions(CLI::App& plan, PlanOptions& options) {
  const CLI::Option* stages = plan.add_option(
      "--stages", options.stages, "stages that the layers are split over");
  const CLI::Option* memory =
      AddParsed(plan, "--stage-memory", options.stage_memory, ParseBytesList,
                "BYTES,..: memory of each; K, M, G, T are 1024s");
  LayerLoadOptions& loads = options.loads;
  const std::vector<CLI::Option*> of_stages = {
      plan.add_option("--placement", options.placement,
                      "a placement that is there, for the split")
          ->excludes("--hosts"),
      plan.add_option("--kv-blocks", loads.kv_blocks,
                      "of the stages, as sluice-stage takes them")
          ->check(Within(1, kMaxKvBlocks)),
      plan.add_option("--max-context", loads.max_context, "likewise")
          ->check(Within(1, kMaxContext)),
      plan.add_option("--max-step-tokens", options.step_tokens,
                      "likewise; 512, with --machine gpus what they take")
          ->check(Within(1, kMaxStepTokens)),
      plan.add_option("--ranks", loads.ranks, "likewise")
          ->check(Within(1, INT32_MAX)),
      AddParsed(plan, "--kv-type", loads.kv_type, ParseKvChoice,
                "auto, f32, bf16 or q8_0"),
      plan.add_option_function<std::string>(
          "--weights",
          [&options](const std::string& name) {
            const Status set = SetWeights(name, options);
            if (set.ok()) return;
            throw CLI::ValidationError("--weights", Message(set));
          },
          "auto, bf16, f32, q8_0, q4_0, q4_1, q5_0 or q5_1; or a type that "
          "config.json's model is taken to have: fp8, mxfp4, q4_k, q6_k, ..."),
  };
  plan.callback([&options, stages, memory, of_stages] {
    if (options.cluster.given()) return;
    if (stages->count() + memory->count() > 0) return;
    for (const CLI::Option* option : of_stages) {
      if (option->count() == 0) continue;
      throw CLI::ValidationError(
          Cat(option->get_name(), " goes with --stages"));
    }
  });
}

}  // namespace

void AddPlan(CommandLine& sluice) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App& plan =
      sluice.Add("plan", "a cluster on paper: layers, experts, room, speeds",
                 [options] { return RunPlan(*options); });
  plan.add_option("MODEL", options->model.path,
                  "folder, GGUF, config.json alone, or a hub's "
                  "ORG/NAME[@REVISION][:QUANT], of which no weights are "
                  "fetched")
      ->required();
  CLI::Option* hosts =
      plan.add_option("--hosts", options->hosts,
                      "NAME=HOST:PORT[:BYTES],... that take experts");
  plan.add_option("--replicas", options->replicas,
                  "hosts that have an expert (1)")
      ->needs(hosts);
  plan.add_option("--local-bytes", options->local_bytes,
                  "of experts that stay on the stages")
      ->needs(hosts);
  plan.add_option("--out", options->out, "where the placement goes (stdout)")
      ->needs(hosts);
  AddStageOptions(plan, *options);
  AddClusterPlan(plan, options->cluster);
}

}  // namespace sluice::cli
