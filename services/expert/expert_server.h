#ifndef SLUICE_SERVICES_EXPERT_EXPERT_SERVER_H_
#define SLUICE_SERVICES_EXPERT_EXPERT_SERVER_H_

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/experts/host/expert_choice.h"
#include "common/experts/host/expert_loop.h"
#include "common/model/hosted_experts.h"
#include "common/rpc/transport_options.h"

namespace sluice::expert {

// The most of an ExpertServerOptions' numbers.
inline constexpr int32_t kMostRows = 1 << 20;
inline constexpr int32_t kMostJoinMicroseconds = 50;

struct ExpertServerOptions {
  std::string listen = "127.0.0.1:0";  // port 0: choose one, see address()
  std::string metrics_listen;          // empty: none
  ExpertChoice choice;
  HostedExpertsOptions experts;  // `held` is taken from `choice`
  rpc::TransportOptions transport;
  int32_t max_rows = 2048;  // of one batch
  int32_t max_batches_in_flight = 64;
  Duration join_window = ExpertLoopOptions().join_window;
  bool per_expert_series = false;
  // The host is not ready if batches make no progress for this long.
  Duration stalled_after = ExpertLoopOptions().stalled_after;
  Duration debug_batch_delay{};  // for tests
};

// An expert host process: experts, loop, gRPC server, metrics. It binds the
// address before it loads the experts; until then it answers clients
// UNAVAILABLE with the progress. Threads: "expert-load" while loading,
// "expert-loop", its team of compute threads, "expert-watch", "metrics-0", and
// gRPC's own.
class ExpertServer {
 public:
  // Binds and begins to load. Errors: INVALID_ARGUMENT for options and models
  // that cannot be, NOT_FOUND for files, UNAVAILABLE for an address in use.
  static StatusOr<std::unique_ptr<ExpertServer>> Start(
      ExpertServerOptions options);
  ~ExpertServer();  // Stop
  ExpertServer(const ExpertServer&) = delete;
  ExpertServer& operator=(const ExpertServer&) = delete;

  const std::string& address() const;  // with the chosen port
  int metrics_port() const;            // 0: none

  // Waits until the experts are loaded, or cannot be; at most until
  // `deadline`, then DEADLINE_EXCEEDED.
  Status WaitLoaded(TimePoint deadline);
  // Null until loaded.
  const HostedExpertsInfo* info() const;
  // The rows that each expert got, as JSON.
  std::string HeatJson() const;

  // Takes no new batch and waits for those it has, at most until `deadline`.
  void Drain(TimePoint deadline);
  // Ends all streams with UNAVAILABLE and joins every thread. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit ExpertServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::expert

#endif  // SLUICE_SERVICES_EXPERT_EXPERT_SERVER_H_
