// sluice-expert: serves experts of a model's sparse layers. See README.md.
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/model/compute_rows.h"
#include "common/rpc/grpc_log.h"
#include "common/service/service_main.h"
#include "services/expert/expert_server.h"

namespace sluice::expert {
namespace {

constexpr auto kDrainTime = std::chrono::seconds(5);

// The variables of the process's options.
struct ExpertFlags {
  ExpertServerOptions server;
  std::string port_file;
};

OptionRows HostRows(ExpertFlags& flags) {
  ExpertServerOptions& server = flags.server;
  return {{"listen", &server.listen,
           "gRPC address, host:port or unix:PATH; port 0: the system chooses"},
          {"model", &server.experts.model_path, "model folder"},
          {"experts", &server.choice.experts,
           "experts to serve, layers:ids with both ends included "
           "(3-10:0-63,3-10:96-127); all for either, or alone for all experts"},
          {"placement", &server.choice.placement,
           "file that says which host has which experts; instead of --experts"},
          {"host", &server.choice.host, "this host's name in --placement"},
          {"device", &server.experts.device,
           "what the host computes on: cpu; cuda:G, a GPU by number or id; or "
           "auto: a GPU if there is one that Sluice runs on, else the CPU"},
          {"max-rows", {&server.max_rows, 1, kMostRows}, "rows of one batch"},
          {"max-batches-in-flight", &server.max_batches_in_flight,
           "unanswered batches of one client"},
          {"join-window-us",
           option::Time<std::micro, int32_t>("US", &server.join_window,
                                             {0, kMostJoinMicroseconds}),
           "microseconds that a batch may wait for others of its layer"},
          {"expert-series", &server.per_expert_series,
           "one series per layer and expert in /metrics"},
          {"metrics-listen", &server.metrics_listen,
           "HTTP address of /metrics, /livez, /readyz and /experts; empty: "
           "none"},
          {"debug-batch-delay-ms",
           option::Time<std::milli, int32_t>("MS", &server.debug_batch_delay,
                                             {0, 10000}),
           "for tests: every computation takes so many milliseconds longer"},
          {"port-file", &flags.port_file,
           "file that the chosen address is written to"}};
}

OptionRows RowsOf(ExpertFlags& flags) {
  OptionRows all;
  for (const OptionRows& rows :
       {HostRows(flags), ComputeRowsOf(flags.server.experts),
        rpc::ServerRowsOf(flags.server.transport)}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

// Returns the server's options after the rows have set `flags`.
StatusOr<ExpertServerOptions> Resolve(const ExpertFlags& flags) {
  ExpertServerOptions options = flags.server;
  HostedExpertsOptions& experts = options.experts;
  if (experts.model_path.empty()) return InvalidArgument("--model is needed");
  auto device = HostedExperts::ChooseDevice(experts.device);
  if (!device.ok()) return Annotate(device.status(), "--device");
  experts.device = *std::move(device);
  SLUICE_RETURN_IF_ERROR(
      Annotate(HostedExperts::CheckNumerics(experts.device, experts.numerics),
               "--numerics"));
  SLUICE_RETURN_IF_ERROR(
      Annotate(HostedExperts::CheckActivations(experts), "--activations"));
  if (options.debug_batch_delay > Duration::zero()) {
    LogWarning("every computation is delayed by ",
               Seconds(options.debug_batch_delay) * 1000, " ms");
  }
  return options;
}

Status Run(const ExpertFlags& flags, const sigset_t& signals) {
  SLUICE_ASSIGN_OR_RETURN(ExpertServerOptions options, Resolve(flags));
  SLUICE_ASSIGN_OR_RETURN(const auto server,
                          ExpertServer::Start(std::move(options)));
  // It ends like one that is told to: a supervisor's next one hears again.
  rpc::OnDeaf([] { AskToEnd("no connection is accepted any more"); });
  return ServeAndDrain(*server, signals, flags.port_file, kDrainTime);
}

}  // namespace
}  // namespace sluice::expert

int main(int argc, char** argv) {
  sluice::expert::ExpertFlags flags;
  return sluice::ServiceMain(
      argc, argv,
      {"expert", "serves experts of a model's sparse layers to its stages",
       "sluice-expert --model PATH --listen 127.0.0.1:7101 --experts all:0-63",
       sluice::expert::RowsOf(flags)},
      [&flags](const sigset_t& signals) {
        return sluice::expert::Run(flags, signals);
      });
}
