#include "services/stage/stage_main.h"

#include <absl/flags/flag.h>
#include <absl/flags/reflection.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "common/base/byte_size.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/model_config/rank_plan.h"
#include "common/rpc/grpc_log.h"
#include "common/service/service_main.h"
#include "common/weights/packed_file.h"
#include "services/stage/follower_server.h"
#include "services/stage/stage_server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "gRPC address, host:port or unix:PATH; port 0: the system chooses");
ABSL_FLAG(std::string, model, "", "model folder, .gguf or .m file");
ABSL_FLAG(std::string, layers, "",
          "layers to serve, first-last (0-7: eight layers); auto: a split "
          "by bytes, by --stage-index and --num-stages; assigned: those that "
          "the gateway names; empty: all");
ABSL_FLAG(bool, assignable, false,
          "a gateway may name other layers later: when a machine is lost, or "
          "joins; needs the whole model here, and no --placement");
ABSL_FLAG(int32_t, stage_index, 0, "which part of the split, from 0");
ABSL_FLAG(int32_t, num_stages, 1, "parts of the split");
ABSL_FLAG(std::string, stage_memory, "",
          "memory of every stage, the same list on all, as 96G,48G: the split "
          "follows it; empty: they are equal");
ABSL_FLAG(std::string, placement, "",
          "file that says which experts are on which hosts; empty: all are "
          "here");
ABSL_FLAG(int32_t, ranks, 1,
          "tensor-parallel ranks in this process; on several GPUs as many as "
          "they are");
ABSL_FLAG(int32_t, follower_ranks, 0,
          "ranks beyond this process's own, which other processes bring "
          "(--lead); each of all ranks needs a GPU");
ABSL_FLAG(std::string, lead, "",
          "address of the stage whose further ranks this process brings; that "
          "one says which layers, and how they are kept");
ABSL_FLAG(int32_t, first_rank, 0, "with --lead: this process's first rank");
ABSL_FLAG(int32_t, threads, 0,
          "compute threads; 0: one per core, and no more than the control "
          "group's CPU quota");
ABSL_FLAG(bool, pin_threads, false,
          "pin each compute thread to a core of its own, and take memory near "
          "the cores: for a process that has its cores for itself");
ABSL_FLAG(
    std::string, weights, "auto",
    "auto, bf16, f32, or blocks made at load: q8_0, q4_0, q4_1, q5_0, q5_1");
ABSL_FLAG(std::string, device, "cpu",
          "what the stage computes on: cpu; cuda:G[,G...], GPUs by number or "
          "id, a rank on each; or auto: a GPU if there is one that Sluice runs "
          "on, else the CPU");
ABSL_FLAG(
    std::string, numerics, "auto",
    "how it computes: canonical, a CPU's bits; fast, a GPU's matrix units "
    "in BF16, which the whole cluster must have; auto, fast on a GPU");
ABSL_FLAG(
    std::string, activations, "stored",
    "what weights of blocks (GGUF's, MXFP4) are multiplied with: stored, "
    "activations of eight bits; f32, blocks widened as they are multiplied, "
    "as exact as the reference and slower; the same on all stages and hosts of "
    "experts");
ABSL_FLAG(std::string, isa, "auto",
          "auto, avx512vnni, avx512, avxvnni, avx2, neoni8mm, neondot, neon or "
          "portable");
ABSL_FLAG(std::string, packed, "auto",
          "where packed weights are kept for the next start: auto (beside the "
          "model, or in the user's cache), off, or a folder");
ABSL_FLAG(double, packed_gb, 0,
          "most GB (10^9 bytes) on disk of packed weights of all models in one "
          "folder; 0: for each model what its weights take once in memory");
ABSL_FLAG(std::string, packed_memory, "copy",
          "kept weights are copied into huge pages (copy: faster), or the "
          "file's pages are used, which processes share (map)");
ABSL_FLAG(std::string, kv_type, "f32",
          "what keys and values are kept in: f32, bf16, q8_0, or auto: bf16 "
          "beside quantised weights (blocks, FP8), else f32; the same on all "
          "stages");
ABSL_FLAG(int32_t, kv_blocks, 0,
          "KV cache blocks of 16 tokens; 0: from the memory at hand");
ABSL_FLAG(int32_t, max_context, 0,
          "positions of one sequence; 0: the model's, or what the memory of "
          "the KV cache allows");
ABSL_FLAG(double, spin_ms, -1,
          "milliseconds for which threads look for the next step before they "
          "sleep; -1: 5 on GPUs if each rank has two CPUs, else 0");
ABSL_FLAG(
    int32_t, max_step_tokens, 0,
    "tokens of one step; 0: 512, and 2048 with fast numerics on GPUs that "
    "give each rank 32 GiB or more, unless --kv-blocks, --max-context or "
    "--stage-memory are given");
ABSL_FLAG(
    bool, replay_log, true,
    "keep what the next stage gets, so that a new next stage makes this "
    "one compute nothing again, if a quarter of the memory left is enough");
ABSL_FLAG(int32_t, max_sequences, 256, "sequences alive at once");
ABSL_FLAG(std::string, metrics_listen, "",
          "HTTP address of /metrics, /livez and /readyz; empty: none");
ABSL_FLAG(std::string, tls_cert, "", "PEM file: this stage's certificate");
ABSL_FLAG(std::string, tls_key, "", "PEM file: its key");
ABSL_FLAG(std::string, tls_ca, "", "PEM file: who signs the peers");
ABSL_FLAG(std::string, tls_roles, "auto",
          "whether peers need a role in their certificates: require, allow "
          "those without, or auto (they do if --tls-cert names one)");
ABSL_FLAG(bool, insecure, false, "plain text beyond loopback");
ABSL_FLAG(bool, reflection, false,
          "gRPC reflection: tells everybody what messages there are");
ABSL_FLAG(double, peer_timeout, 10,
          "seconds of silence after which a peer is lost");
ABSL_FLAG(int32_t, debug_step_delay_ms, 0,
          "for tests: every step takes so many milliseconds longer");
ABSL_FLAG(std::string, log_format, "text", "lines of the log: text or json");
ABSL_FLAG(std::string, log_level, "info",
          "the least that is logged: debug, info, warning or error");
ABSL_FLAG(std::string, port_file, "",
          "file that the chosen address is written to");
ABSL_FLAG(double, drain_timeout, 60,
          "seconds that the gateway gets after SIGTERM to end its sequences");

namespace sluice::stage {
namespace {

StatusOr<LayerChoice> ParseLayers(const std::string& text) {
  LayerChoice choice;
  if (text != "auto" && !absl::GetFlag(FLAGS_stage_memory).empty()) {
    return InvalidArgument("--stage-memory goes with --layers auto");
  }
  if (text != "auto" && (absl::GetFlag(FLAGS_stage_index) != 0 ||
                         absl::GetFlag(FLAGS_num_stages) != 1)) {
    return InvalidArgument(
        "--stage-index and --num-stages go with --layers auto");
  }
  if (text.empty()) return choice;
  choice.assigned = text == "assigned";
  if (choice.assigned) return choice;
  if (text == "auto") {
    choice.index = absl::GetFlag(FLAGS_stage_index);
    choice.parts = absl::GetFlag(FLAGS_num_stages);
    auto memory = ParseBytesList(absl::GetFlag(FLAGS_stage_memory));
    if (!memory.ok()) return Annotate(memory.status(), "--stage-memory");
    choice.memory = *std::move(memory);
    if (choice.parts >= 1) return choice;
    return InvalidArgument("--num-stages must be positive, got ", choice.parts);
  }
  const char* end = text.data() + text.size();
  int32_t last = 0;
  auto parsed = std::from_chars(text.data(), end, choice.first);
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
    parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec == std::errc() && parsed.ptr == end && last >= 0 &&
        last < INT32_MAX) {
      choice.last = last + 1;
      return choice;
    }
  }
  return InvalidArgument("--layers must be first-last, auto or assigned, got '",
                         text, "'");
}

// --device, and the ranks that it asks for.
Status ChooseDevice(StageOptions& stage) {
  // A stage of --layers auto knows which of several it is.
  const bool has_place = absl::GetFlag(FLAGS_num_stages) > 1;
  auto device =
      Stage::ChooseDevice(absl::GetFlag(FLAGS_device),
                          has_place ? absl::GetFlag(FLAGS_stage_index) : -1);
  if (!device.ok()) return Annotate(device.status(), "--device");
  stage.device = *std::move(device);
  const auto ranks = Stage::RanksOn(stage.device, absl::GetFlag(FLAGS_ranks));
  if (!ranks.ok()) return Annotate(ranks.status(), "--ranks");
  stage.ranks = *ranks;
  const int32_t more = absl::GetFlag(FLAGS_follower_ranks);
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
Status ChooseStepTokens(StageServerOptions& options) {
  StageOptions& stage = options.stage;
  const int32_t given = absl::GetFlag(FLAGS_max_step_tokens);
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

Status SetSpin(StageOptions& stage) {
  const double spin_ms = absl::GetFlag(FLAGS_spin_ms);
  if (spin_ms == -1) return OkStatus();
  if (!(spin_ms >= 0 && spin_ms <= 1000)) {
    return InvalidArgument("--spin-ms must be between 0 and 1000, or -1, got ",
                           spin_ms);
  }
  stage.spin = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(spin_ms));
  return OkStatus();
}

// What a process has of itself, as a stage or as a follower.
Status SetOwn(StageOptions& stage) {
  stage.model_path = absl::GetFlag(FLAGS_model);
  if (stage.model_path.empty()) return InvalidArgument("--model is needed");
  stage.threads = absl::GetFlag(FLAGS_threads);
  stage.pin_threads = absl::GetFlag(FLAGS_pin_threads);
  stage.isa = absl::GetFlag(FLAGS_isa);
  SLUICE_RETURN_IF_ERROR(ChooseDevice(stage));
  stage.packed.where = absl::GetFlag(FLAGS_packed);
  SLUICE_ASSIGN_OR_RETURN(stage.packed.bounds.max_bytes,
                          ParsePackedGb(absl::GetFlag(FLAGS_packed_gb)));
  SLUICE_ASSIGN_OR_RETURN(
      stage.packed.memory,
      weights::ParsePackedMemory(absl::GetFlag(FLAGS_packed_memory)));
  return SetSpin(stage);
}

Status SetTransport(rpc::TransportOptions& transport) {
  transport.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  transport.tls_key = absl::GetFlag(FLAGS_tls_key);
  transport.tls_ca = absl::GetFlag(FLAGS_tls_ca);
  SLUICE_ASSIGN_OR_RETURN(transport.roles,
                          rpc::ParseTlsRoles(absl::GetFlag(FLAGS_tls_roles)));
  transport.insecure = absl::GetFlag(FLAGS_insecure);
  transport.reflection = absl::GetFlag(FLAGS_reflection);
  transport.peer_timeout = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(absl::GetFlag(FLAGS_peer_timeout)));
  return OkStatus();
}

// Refuses flags that are the lead's.
Status CheckLeadsFlags() {
  // clang-format off
  for (const char* const name :
       {"layers", "assignable", "stage_memory", "placement", "follower_ranks",
        "weights", "numerics", "activations", "kv_type", "kv_blocks",
        "max_context", "max_step_tokens", "max_sequences", "replay_log",
        "listen", "port_file", "stage_index", "num_stages",
        "debug_step_delay_ms", "reflection"}) {
    // clang-format on
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    SLUICE_CHECK(flag != nullptr);
    if (flag->CurrentValue() == flag->DefaultValue()) continue;
    std::string option = name;
    std::ranges::replace(option, '_', '-');
    return InvalidArgument(
        "--", option, " is the lead's: a process with --lead ",
        "takes it from there, got '", flag->CurrentValue(), "'");
  }
  return OkStatus();
}

StatusOr<FollowerOptions> FollowerFromFlags() {
  SLUICE_RETURN_IF_ERROR(CheckLeadsFlags());
  FollowerOptions options;
  options.lead = absl::GetFlag(FLAGS_lead);
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  SLUICE_RETURN_IF_ERROR(SetOwn(options.stage));
  options.stage.first_rank = absl::GetFlag(FLAGS_first_rank);
  const int32_t most = kMaxShards - options.stage.ranks;
  if (options.stage.first_rank < 1 || options.stage.first_rank > most) {
    return InvalidArgument("--first-rank must be between 1 and ", most, " for ",
                           options.stage.ranks,
                           " ranks of a stage whose lead has rank 0, got ",
                           options.stage.first_rank);
  }
  SLUICE_RETURN_IF_ERROR(SetTransport(options.transport));
  options.on_failed = [](const Status& why) {
    LogError(Message(why));
    AskToEnd("the ranks cannot be loaded");
  };
  return options;
}

StatusOr<StageServerOptions> OptionsFromFlags() {
  StageServerOptions options;
  if (absl::GetFlag(FLAGS_first_rank) != 0) {
    return InvalidArgument("--first-rank goes with --lead");
  }
  options.listen = absl::GetFlag(FLAGS_listen);
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options.placement = absl::GetFlag(FLAGS_placement);
  SLUICE_ASSIGN_OR_RETURN(options.layers,
                          ParseLayers(absl::GetFlag(FLAGS_layers)));
  options.layers.assignable = absl::GetFlag(FLAGS_assignable);
  StageOptions& stage = options.stage;
  SLUICE_RETURN_IF_ERROR(SetOwn(stage));
  SLUICE_ASSIGN_OR_RETURN(stage.weights,
                          ParseWeightsMode(absl::GetFlag(FLAGS_weights)));
  stage.numerics = absl::GetFlag(FLAGS_numerics);
  SLUICE_RETURN_IF_ERROR(Annotate(
      Stage::CheckNumerics(stage.device, stage.numerics), "--numerics"));
  SLUICE_ASSIGN_OR_RETURN(stage.activations,
                          ParseActivations(absl::GetFlag(FLAGS_activations)));
  SLUICE_RETURN_IF_ERROR(
      Annotate(Stage::CheckActivations(stage), "--activations"));
  SLUICE_ASSIGN_OR_RETURN(stage.kv_type,
                          ParseKvChoice(absl::GetFlag(FLAGS_kv_type)));
  stage.kv_blocks = absl::GetFlag(FLAGS_kv_blocks);
  stage.max_context = absl::GetFlag(FLAGS_max_context);
  SLUICE_RETURN_IF_ERROR(ChooseStepTokens(options));
  stage.replay_log = absl::GetFlag(FLAGS_replay_log);
  stage.max_sequences = absl::GetFlag(FLAGS_max_sequences);
  const int32_t delay = absl::GetFlag(FLAGS_debug_step_delay_ms);
  if (delay < 0 || delay > 10000) {
    return InvalidArgument(
        "--debug-step-delay-ms must be between 0 and 10000, got ", delay);
  }
  if (delay > 0) LogWarning("every step is delayed by ", delay, " ms");
  stage.debug_step_delay = std::chrono::milliseconds(delay);
  options.ask_to_end = [] {
    AskToEnd("a process with some of its ranks ends");
  };
  SLUICE_RETURN_IF_ERROR(SetTransport(options.transport));
  return options;
}

// A lead that drains because a follower is told to end begins later, and takes
// some seconds more for the steps under way.
constexpr auto kLeadsDrain = std::chrono::seconds(15);

// A process with ranks of another one's stage, until a signal comes.
Status Follow(const sigset_t& signals, Duration drain_time,
              const BackendFactory& make_backends) {
  SLUICE_ASSIGN_OR_RETURN(FollowerOptions options, FollowerFromFlags());
  options.stage.make_backends = make_backends;
  SLUICE_ASSIGN_OR_RETURN(const auto server,
                          FollowerServer::Start(std::move(options)));
  SLUICE_RETURN_IF_ERROR(AwaitLoad(signals, [&server](TimePoint deadline) {
    return server->WaitLoaded(deadline);
  }));
  const Status why = AwaitSignal(signals);
  UnblockSignals(signals);
  server->Drain(Clock::now() + drain_time + kLeadsDrain);
  server->Stop();
  LogInfo("stopped");
  return why;
}

Status Run(const sigset_t& signals, const BackendFactory& make_backends) {
  SLUICE_RETURN_IF_ERROR(SetUpLog(absl::GetFlag(FLAGS_log_format),
                                  absl::GetFlag(FLAGS_log_level)));
  const double drain_timeout = absl::GetFlag(FLAGS_drain_timeout);
  if (!(drain_timeout >= 0 && drain_timeout <= 86400)) {
    return InvalidArgument("--drain-timeout must be between 0 and 86400, got ",
                           drain_timeout);
  }
  const auto drain_time = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(drain_timeout));
  if (!absl::GetFlag(FLAGS_lead).empty()) {
    return Follow(signals, drain_time, make_backends);
  }
  SLUICE_ASSIGN_OR_RETURN(StageServerOptions options, OptionsFromFlags());
  options.stage.make_backends = make_backends;
  SLUICE_ASSIGN_OR_RETURN(const auto server,
                          StageServer::Start(std::move(options)));
  // It ends like one that is told to: a supervisor's next one hears again.
  rpc::OnDeaf([] { AskToEnd("no connection is accepted any more"); });
  return ServeAndDrain(*server, signals, absl::GetFlag(FLAGS_port_file),
                       drain_time);
}

}  // namespace

int StageMain(int argc, char** argv, const BackendFactory& make_backends) {
  return ServiceMain(
      argc, argv, "stage",
      "serves a range of a model's layers to a gateway\n"
      "  sluice-stage --model PATH --listen 127.0.0.1:7001 --layers 0-14",
      [&make_backends](const sigset_t& signals) {
        return Run(signals, make_backends);
      });
}

}  // namespace sluice::stage
