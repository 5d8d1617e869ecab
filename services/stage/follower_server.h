#ifndef SLUICE_SERVICES_STAGE_FOLLOWER_SERVER_H_
#define SLUICE_SERVICES_STAGE_FOLLOWER_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/transport_options.h"
#include "common/stage/stage.h"

namespace sluice::stage {

struct FollowerOptions {
  std::string lead;            // the lead's gRPC address
  std::string metrics_listen;  // empty: none
  // Of the model, the device and this process's threads and ranks; all else is
  // the lead's.
  StageOptions stage;
  rpc::TransportOptions transport;
  // Called when ranks that were loaded once cannot be loaded again, and no
  // other try can have another end.
  std::function<void(const Status& why)> on_failed = [](const Status&) {};
};

// A process with ranks of a stage that another process, the lead, is for
// gateways. It opens a stream to the lead, loads what the lead says, and runs
// the lead's steps. Before and after that it waits for the lead, and tries
// again every second; a lead that is lost while ranks are loaded ends the
// process (EndToBeReplaced), since the devices of its ranks may wait for the
// lead's. Threads: "follow", the ranks, "metrics-0", and gRPC's own.
class FollowerServer {
 public:
  // Opens the model. Errors: INVALID_ARGUMENT for options and models that
  // cannot be.
  static StatusOr<std::unique_ptr<FollowerServer>> Start(
      FollowerOptions options);
  ~FollowerServer();  // Stop
  FollowerServer(const FollowerServer&) = delete;
  FollowerServer& operator=(const FollowerServer&) = delete;

  int metrics_port() const;  // 0: none

  // Waits until the ranks are loaded for the first time, or cannot be; at most
  // until `deadline`, then DEADLINE_EXCEEDED. Errors: the lead's refusal, or
  // what is wrong with the ranks.
  Status WaitLoaded(TimePoint deadline);
  // Tells the lead that this process ends. Returns when the lead has let go of
  // it. At `deadline` it ends the process if there is a load (EndToBeReplaced,
  // but with 0 while ranks are being loaded), else returns.
  void Drain(TimePoint deadline);
  // Joins every thread. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit FollowerServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::stage

#endif  // SLUICE_SERVICES_STAGE_FOLLOWER_SERVER_H_
