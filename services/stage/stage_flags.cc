#include "services/stage/stage_flags.h"

#include <utility>

#include "common/base/byte_size.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/model/compute_rows.h"
#include "common/model_config/layer_range.h"
#include "common/model_config/rank_plan.h"

namespace sluice::stage {
namespace {

OptionRows PlaceRows(StageFlags& flags) {
  StageServerOptions& server = flags.server;
  return {
      {"listen", &server.listen,
       "gRPC address, host:port or unix:PATH; port 0: the system chooses"},
      {"model", &server.stage.model_path, "model folder, .gguf or .m file"},
      {"layers", &flags.layers,
       "layers to serve, first-last (0-7: eight layers), or with commas those "
       "of every stage, by --stage-index and --num-stages; auto: a split "
       "by bytes, by the same; assigned: those that "
       "the gateway names; empty: all"},
      {"assignable", &server.layers.assignable,
       "a gateway may name other layers later: when a machine is lost, or "
       "joins; needs the whole model here, and no --placement"},
      {"stage-index", &flags.stage_index, "which part of the split, from 0"},
      {"num-stages", &flags.num_stages, "parts of the split"},
      {"stage-memory", &flags.stage_memory,
       "memory of every stage, the same list on all, as 96G,48G: the split "
       "follows it; empty: they are equal"},
      {"placement", &server.placement,
       "file that says which experts are on which hosts; empty: all are "
       "here"},
      {"ranks", &server.stage.ranks,
       "tensor-parallel ranks in this process; on several GPUs as many as "
       "they are"},
      {"follower-ranks", &flags.follower_ranks,
       "ranks beyond this process's own, which other processes bring "
       "(--lead); each of all ranks needs a GPU"},
      {"lead", &flags.lead,
       "address of the stage whose further ranks this process brings; that "
       "one says which layers, and how they are kept"},
      {"first-rank", &flags.first_rank,
       "with --lead: this process's first rank"},
      {"device", &server.stage.device,
       "what the stage computes on: cpu; cuda:G[,G...], GPUs by number or "
       "id, a rank on each; or auto: a GPU if there is one that Sluice runs "
       "on, else the CPU"}};
}

OptionRows LimitRows(StageFlags& flags) {
  StageServerOptions& server = flags.server;
  StageOptions& stage = server.stage;
  return {
      {"kv-type",
       option::Parsed(&stage.kv_type, ParseKvChoice,
                      [](KvChoice choice) { return ToString(choice); }),
       "what keys and values are kept in: f32, bf16, q8_0, or auto: bf16 "
       "beside quantised weights (blocks, FP8), else f32; the same on all "
       "stages"},
      {"kv-blocks", &stage.kv_blocks,
       "KV cache blocks of 16 tokens; 0: from the memory at hand"},
      {"max-context", &stage.max_context,
       "positions of one sequence; 0: the model's, or what the memory of "
       "the KV cache allows"},
      {"spin-ms",
       {&flags.spin_ms, -1, 1000},
       "milliseconds for which threads look for the next step "
       "before they sleep; -1: 5 on GPUs if each rank has two CPUs, else 0"},
      {"max-step-tokens", &flags.step_tokens,
       "tokens of one step; 0: 512, and 2048 with fast numerics on GPUs that "
       "give each rank 32 GiB or more, unless --kv-blocks, --max-context or "
       "--stage-memory are given"},
      {"replay-log", &stage.replay_log,
       "keep what the next stage gets, so that a new next stage makes this "
       "one compute nothing again, if a quarter of the memory left is enough"},
      {"max-sequences", &stage.max_sequences, "sequences alive at once"},
      {"metrics-listen", &server.metrics_listen,
       "HTTP address of /metrics, /livez and /readyz; empty: none"},
      {"debug-step-delay-ms",
       option::Time<std::milli, int32_t>("MS", &stage.debug_step_delay,
                                         {0, 10000}),
       "for tests: every step takes so many milliseconds longer"},
      {"port-file", &flags.port_file,
       "file that the chosen address is written to"},
      {"drain-timeout", option::Seconds(&flags.drain_timeout, 0, 86400),
       "seconds that the gateway gets after SIGTERM to end its sequences"}};
}

// Returns the layers of a range, or of one in a list of every stage's.
StatusOr<LayerChoice> ParseListedLayers(const StageFlags& flags) {
  const auto ranges = ParseLayerRanges(flags.layers);
  if (!ranges.ok() && flags.layers.find(',') == std::string::npos) {
    return InvalidArgument("--layers must be first-last, auto or assigned, ",
                           "got '", flags.layers, "'");
  }
  if (!ranges.ok()) return Annotate(ranges.status(), "--layers");
  const auto count = static_cast<int32_t>(ranges->size());
  if (flags.num_stages != count || flags.stage_index < 0 ||
      flags.stage_index >= count) {
    return InvalidArgument(
        "--layers has ", count, " ranges: --num-stages must be as many, got ",
        flags.num_stages, ", and --stage-index below, got ", flags.stage_index);
  }
  const LayerRange range = (*ranges)[static_cast<size_t>(flags.stage_index)];
  LayerChoice choice;
  choice.first = range.first;
  choice.last = range.last;
  return choice;
}

StatusOr<LayerChoice> ParseLayers(const StageFlags& flags) {
  const std::string& text = flags.layers;
  const bool listed = !text.empty() && text != "auto" && text != "assigned";
  LayerChoice choice;
  if (text != "auto" && !flags.stage_memory.empty()) {
    return InvalidArgument("--stage-memory goes with --layers auto");
  }
  if (listed) return ParseListedLayers(flags);
  if (text != "auto" && (flags.stage_index != 0 || flags.num_stages != 1)) {
    return InvalidArgument(
        "--stage-index and --num-stages go with --layers auto or a list");
  }
  choice.assigned = text == "assigned";
  if (text != "auto") return choice;
  choice.index = flags.stage_index;
  choice.parts = flags.num_stages;
  auto memory = ParseBytesList(flags.stage_memory);
  if (!memory.ok()) return Annotate(memory.status(), "--stage-memory");
  choice.memory = *std::move(memory);
  if (choice.parts >= 1) return choice;
  return InvalidArgument("--num-stages must be positive, got ", choice.parts);
}

// --device, and the ranks that it asks for.
Status ChooseDevice(const StageFlags& flags, StageOptions& stage) {
  // A stage of --layers auto knows which of several it is.
  const bool has_place = flags.num_stages > 1;
  auto device =
      Stage::ChooseDevice(stage.device, has_place ? flags.stage_index : -1);
  if (!device.ok()) return Annotate(device.status(), "--device");
  stage.device = *std::move(device);
  const auto ranks = Stage::RanksOn(stage.device, stage.ranks);
  if (!ranks.ok()) return Annotate(ranks.status(), "--ranks");
  stage.ranks = *ranks;
  const int32_t more = flags.follower_ranks;
  if (more == 0) return OkStatus();
  if (more < 0 || more > kMaxShards - stage.ranks) {
    return InvalidArgument("--follower-ranks must be between 0 and ",
                           kMaxShards - stage.ranks, " beside ", stage.ranks,
                           " of this process, got ", more);
  }
  stage.all_ranks = stage.ranks + more;
  return OkStatus();
}

// `options`: with the device, ranks, numerics, and what limits the memory. A
// split of layers, which is the same on all stages, does not depend on their
// devices; a step that is larger than the split's goes with memory that the
// stage chooses. Nor does the step of canonical numerics depend on them:
// another kind of device may take the stage's place, and other limits would
// cost all stages their KV cache.
Status ChooseStepTokens(int32_t given, StageServerOptions& options) {
  StageOptions& stage = options.stage;
  if (given != 0) {
    options.layers.step_tokens = stage.max_step_tokens = given;
    return OkStatus();
  }
  if (stage.kv_blocks != 0 || stage.max_context != 0 ||
      !options.layers.memory.empty() || stage.numerics == "canonical") {
    return OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(stage.max_step_tokens,
                          Stage::StepTokensOn(stage.device, stage.ranks));
  return OkStatus();
}

// What a process has of itself, as a stage or as a follower.
Status ResolveOwn(const StageFlags& flags, StageOptions& stage) {
  if (stage.model_path.empty()) return InvalidArgument("--model is needed");
  SLUICE_RETURN_IF_ERROR(ChooseDevice(flags, stage));
  if (flags.spin_ms == -1) return OkStatus();
  if (!(flags.spin_ms >= 0 && flags.spin_ms <= 1000)) {
    return InvalidArgument("--spin-ms must be between 0 and 1000, or -1, got ",
                           flags.spin_ms);
  }
  stage.spin = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(flags.spin_ms));
  return OkStatus();
}

// Refuses options that are the lead's.
Status CheckLeadsOptions(const OptionRows& rows) {
  // clang-format off
  for (const char* const name :
       {"layers", "assignable", "stage-memory", "placement", "follower-ranks",
        "weights", "numerics", "activations", "kv-type", "kv-blocks",
        "max-context", "max-step-tokens", "max-sequences", "replay-log",
        "listen", "port-file", "stage-index", "num-stages",
        "debug-step-delay-ms", "reflection"}) {
    // clang-format on
    const OptionRow* const row = FindOption(rows, name);
    SLUICE_CHECK(row != nullptr);
    const std::string text = row->value.get();
    if (text == row->usual) continue;
    return InvalidArgument("--", name, " is the lead's: a process with --lead ",
                           "takes it from there, got '", text, "'");
  }
  return OkStatus();
}

}  // namespace

OptionRows RowsOf(StageFlags& flags) {
  OptionRows all;
  for (const OptionRows& rows :
       {PlaceRows(flags), ComputeRowsOf(flags.server.stage), LimitRows(flags),
        rpc::ServerRowsOf(flags.server.transport)}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

StatusOr<FollowerOptions> ResolveFollower(const StageFlags& flags,
                                          const OptionRows& rows) {
  SLUICE_RETURN_IF_ERROR(CheckLeadsOptions(rows));
  FollowerOptions options;
  options.lead = flags.lead;
  options.metrics_listen = flags.server.metrics_listen;
  options.stage = flags.server.stage;
  options.transport = flags.server.transport;
  SLUICE_RETURN_IF_ERROR(ResolveOwn(flags, options.stage));
  options.stage.first_rank = flags.first_rank;
  const int32_t most = kMaxShards - options.stage.ranks;
  if (flags.first_rank < 1 || flags.first_rank > most) {
    return InvalidArgument("--first-rank must be between 1 and ", most, " for ",
                           options.stage.ranks,
                           " ranks of a stage whose lead has rank 0, got ",
                           flags.first_rank);
  }
  return options;
}

StatusOr<StageServerOptions> ResolveStage(const StageFlags& flags) {
  if (flags.first_rank != 0) {
    return InvalidArgument("--first-rank goes with --lead");
  }
  StageServerOptions options = flags.server;
  SLUICE_ASSIGN_OR_RETURN(options.layers, ParseLayers(flags));
  options.layers.assignable = flags.server.layers.assignable;
  StageOptions& stage = options.stage;
  SLUICE_RETURN_IF_ERROR(ResolveOwn(flags, stage));
  SLUICE_RETURN_IF_ERROR(Annotate(
      Stage::CheckNumerics(stage.device, stage.numerics), "--numerics"));
  SLUICE_RETURN_IF_ERROR(
      Annotate(Stage::CheckActivations(stage), "--activations"));
  SLUICE_RETURN_IF_ERROR(ChooseStepTokens(flags.step_tokens, options));
  if (stage.debug_step_delay > Duration::zero()) {
    LogWarning("every step is delayed by ",
               Seconds(stage.debug_step_delay) * 1000, " ms");
  }
  return options;
}

}  // namespace sluice::stage
