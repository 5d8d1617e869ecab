// sluice-expert: serves experts of a model's sparse layers. See README.md.
#include <absl/flags/flag.h>

#include <string>

#include "common/base/log.h"
#include "common/rpc/grpc_log.h"
#include "common/service/service_main.h"
#include "common/weights/packed_file.h"
#include "services/expert/expert_server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "gRPC address, host:port or unix:PATH; port 0: the system chooses");
ABSL_FLAG(std::string, model, "", "model folder");
ABSL_FLAG(std::string, experts, "",
          "experts to serve, layers:ids with both ends included "
          "(3-10:0-63,3-10:96-127); all for either, or alone for all experts");
ABSL_FLAG(std::string, placement, "",
          "file that says which host has which experts; instead of --experts");
ABSL_FLAG(std::string, host, "", "this host's name in --placement");
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
          "what the host computes on: cpu; cuda:G, a GPU by number or id; or "
          "auto: a GPU if there is one that Sluice runs on, else the CPU");
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
ABSL_FLAG(int32_t, max_rows, 2048, "rows of one batch");
ABSL_FLAG(int32_t, max_batches_in_flight, 64,
          "unanswered batches of one client");
ABSL_FLAG(int32_t, join_window_us, 50,
          "microseconds that a batch may wait for others of its layer, at "
          "most 50");
ABSL_FLAG(bool, expert_series, false,
          "one series per layer and expert in /metrics");
ABSL_FLAG(std::string, metrics_listen, "",
          "HTTP address of /metrics, /livez, /readyz and /experts; empty: "
          "none");
ABSL_FLAG(std::string, tls_cert, "", "PEM file: this host's certificate");
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
ABSL_FLAG(int32_t, debug_batch_delay_ms, 0,
          "for tests: every computation takes so many milliseconds longer");
ABSL_FLAG(std::string, log_format, "text", "lines of the log: text or json");
ABSL_FLAG(std::string, log_level, "info",
          "the least that is logged: debug, info, warning or error");
ABSL_FLAG(std::string, port_file, "",
          "file that the chosen address is written to");

namespace sluice::expert {
namespace {

constexpr auto kDrainTime = std::chrono::seconds(5);

StatusOr<ExpertServerOptions> OptionsFromFlags() {
  ExpertServerOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options.choice = {absl::GetFlag(FLAGS_experts),
                    absl::GetFlag(FLAGS_placement), absl::GetFlag(FLAGS_host)};
  HostedExpertsOptions& experts = options.experts;
  experts.model_path = absl::GetFlag(FLAGS_model);
  if (experts.model_path.empty()) return InvalidArgument("--model is needed");
  experts.threads = absl::GetFlag(FLAGS_threads);
  experts.pin_threads = absl::GetFlag(FLAGS_pin_threads);
  SLUICE_ASSIGN_OR_RETURN(experts.weights,
                          ParseWeightsMode(absl::GetFlag(FLAGS_weights)));
  experts.isa = absl::GetFlag(FLAGS_isa);
  experts.numerics = absl::GetFlag(FLAGS_numerics);
  auto device = HostedExperts::ChooseDevice(absl::GetFlag(FLAGS_device));
  if (!device.ok()) return Annotate(device.status(), "--device");
  experts.device = *std::move(device);
  SLUICE_RETURN_IF_ERROR(
      Annotate(HostedExperts::CheckNumerics(experts.device, experts.numerics),
               "--numerics"));
  SLUICE_ASSIGN_OR_RETURN(experts.activations,
                          ParseActivations(absl::GetFlag(FLAGS_activations)));
  SLUICE_RETURN_IF_ERROR(
      Annotate(HostedExperts::CheckActivations(experts), "--activations"));
  experts.packed.where = absl::GetFlag(FLAGS_packed);
  SLUICE_ASSIGN_OR_RETURN(experts.packed.bounds.max_bytes,
                          ParsePackedGb(absl::GetFlag(FLAGS_packed_gb)));
  SLUICE_ASSIGN_OR_RETURN(
      experts.packed.memory,
      weights::ParsePackedMemory(absl::GetFlag(FLAGS_packed_memory)));
  options.max_rows = absl::GetFlag(FLAGS_max_rows);
  options.max_batches_in_flight = absl::GetFlag(FLAGS_max_batches_in_flight);
  options.join_window =
      std::chrono::microseconds(absl::GetFlag(FLAGS_join_window_us));
  options.per_expert_series = absl::GetFlag(FLAGS_expert_series);
  const int32_t delay = absl::GetFlag(FLAGS_debug_batch_delay_ms);
  if (delay < 0 || delay > 10000) {
    return InvalidArgument(
        "--debug-batch-delay-ms must be between 0 and 10000, got ", delay);
  }
  if (delay > 0) LogWarning("every computation is delayed by ", delay, " ms");
  options.debug_batch_delay = std::chrono::milliseconds(delay);
  rpc::TransportOptions& transport = options.transport;
  transport.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  transport.tls_key = absl::GetFlag(FLAGS_tls_key);
  transport.tls_ca = absl::GetFlag(FLAGS_tls_ca);
  SLUICE_ASSIGN_OR_RETURN(transport.roles,
                          rpc::ParseTlsRoles(absl::GetFlag(FLAGS_tls_roles)));
  transport.insecure = absl::GetFlag(FLAGS_insecure);
  transport.reflection = absl::GetFlag(FLAGS_reflection);
  transport.peer_timeout = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(absl::GetFlag(FLAGS_peer_timeout)));
  return options;
}

Status Run(const sigset_t& signals) {
  SLUICE_RETURN_IF_ERROR(SetUpLog(absl::GetFlag(FLAGS_log_format),
                                  absl::GetFlag(FLAGS_log_level)));
  SLUICE_ASSIGN_OR_RETURN(ExpertServerOptions options, OptionsFromFlags());
  SLUICE_ASSIGN_OR_RETURN(const auto server,
                          ExpertServer::Start(std::move(options)));
  // It ends like one that is told to: a supervisor's next one hears again.
  rpc::OnDeaf([] { AskToEnd("no connection is accepted any more"); });
  return ServeAndDrain(*server, signals, absl::GetFlag(FLAGS_port_file),
                       kDrainTime);
}

}  // namespace
}  // namespace sluice::expert

int main(int argc, char** argv) {
  return sluice::ServiceMain(
      argc, argv, "expert",
      "serves experts of a model's sparse layers to its stages\n"
      "  sluice-expert --model PATH --listen 127.0.0.1:7101 --experts "
      "all:0-63",
      sluice::expert::Run);
}
