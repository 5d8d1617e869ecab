#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CONNECTION_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/pipeline/gateway/heartbeats.h"
#include "common/pipeline/gateway/pipeline_events.h"
#include "common/pipeline/gateway/stage_clock.h"
#include "common/pipeline/gateway/stage_links.h"
#include "common/pipeline/gateway/stage_process.h"

namespace sluice {

// The gateway's connection to one stage's process: its Control stream and its
// clock. The thread "pipeline" calls every method but clock().
class StageConnection {
 public:
  StageConnection(std::string address, std::shared_ptr<grpc::Channel> control);

  // Opens Control with `hello`, in the place of an open stream. `on_message`
  // gets the stage's messages and when they came (nanoseconds), `on_end` the
  // stream's end, never OK. Both run on the thread "pipeline".
  void Open(const v1::Hello& hello,
            const std::shared_ptr<PipelineEvents>& events,
            std::function<void(const v1::ControlResponse&, int64_t)> on_message,
            std::function<void(const Status&)> on_end);
  // Forgets the stream, which is returned to be half-closed or cancelled.
  std::shared_ptr<ControlLink> Forget();

  // Neither waits. Without a stream nothing is sent: an exception may have kept
  // it from being opened.
  void Send(v1::ControlRequest request);
  void SendHeartbeat(uint64_t sequence);

  // A Welcome came, with the stage's clock.
  void OnWelcome(int64_t stage_ns, int64_t received_ns);
  // Returns the time to the stage and back; nothing: the heartbeat is not
  // outstanding.
  std::optional<Duration> OnHeartbeat(const v1::HeartbeatReply& reply,
                                      int64_t received_ns);

  const std::string& address() const { return address_; }
  // The stage's clock against the gateway's, from heartbeats. Any thread.
  ClockEstimate clock(int64_t now_ns) const;

 private:
  void AddRoundTrip(int64_t sent_ns, int64_t stage_ns, int64_t received_ns);

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<ControlLink> link_;
  int64_t opened_ns_ = 0;
  Heartbeats heartbeats_;  // of this stream
  mutable Mutex clock_mutex_;
  StageClock clock_ ABSL_GUARDED_BY(clock_mutex_);
};

using StageConnections = std::vector<std::shared_ptr<StageConnection>>;

// The stage's account of its work.
StageLoad LoadOf(const v1::HeartbeatReply& reply);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CONNECTION_H_
