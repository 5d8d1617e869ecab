#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CONNECTION_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CONNECTION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/pipeline/gateway/handshake.h"
#include "common/pipeline/gateway/heartbeats.h"
#include "common/pipeline/gateway/pipeline_events.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/pipeline/gateway/stage_clock.h"
#include "common/pipeline/gateway/stage_links.h"

namespace sluice {

// How long after its last sign of life a lost process is waited for: a stream
// may break and the process still hold its layers, which no spare has yet.
inline constexpr Duration kReturnGrace = std::chrono::seconds(3);

// The gateway's connection to one stage's process: its Control stream, what
// the stage says of itself, whether it lives, and its clock. The thread
// "pipeline" calls every method but clock().
class StageConnection {
 public:
  StageConnection(std::string address, std::shared_ptr<grpc::Channel> control);

  // The stage's place in the pipeline, for people; nothing: it is a spare.
  void SetIndex(std::optional<size_t> index) { index_ = index; }

  // Opens Control with `hello`. `link_id` tells the events of this stream from
  // those of an older one: what the stage says and when (nanoseconds), and the
  // stream's end, never OK. Both run on the thread "pipeline".
  void Connect(
      const v1::Hello& hello, uint64_t link_id,
      const std::shared_ptr<PipelineEvents>& events,
      std::function<void(const v1::ControlResponse&, int64_t)> on_message,
      std::function<void(const Status&)> on_end);
  // Forgets the stream because of `why`, and sets when to connect again.
  // Returns the stream, for the caller to half-close or cancel. Needs a link.
  std::shared_ptr<ControlLink> End(const Status& why);
  // Takes in what the stage says of itself. An error: a welcome that this
  // gateway cannot work with.
  Status OnMessage(const v1::ControlResponse& response, int64_t received_ns);

  // None of them waits. All need a link; SendAssign needs a welcome of both.
  void Send(v1::ControlRequest request);
  void SendHeartbeat(uint64_t sequence);
  // `next`: the stage that follows; null: none. `last`: the one whose sampled
  // tokens the stage reads; null: none.
  void SendAssign(const wire::PipelineName& name, const PipelineLimits& limits,
                  const StageConnection* next,
                  const StageConnection* last = nullptr);
  // Makes an assignable stage load the layers of `place`, once per stream. The
  // stage ends the stream, or refuses with Assigned.
  void SendLoad(const wire::PipelineName& name, const StagePlace& place);

  // The pipeline was refused because of this stage, or (empty) is tried anew.
  void SetConflict(std::string message);
  // The gateway does not try to reach the stage: its absence counts from `now`.
  void NotTried(TimePoint now) { alive_at_ = now; }
  // What the stage is shown as while it is not connected.
  void SetDownState(StageState state) { down_state_ = state; }

  const std::string& address() const { return address_; }
  // Of the latest welcome; without a model's name: there was none.
  const StageFacts& facts() const { return facts_; }
  bool holds(const StagePlace& place) const {
    return welcomed_ && !place.empty() && facts_.place() == place;
  }
  // Whether a spare may have this stage's place at `now`: the stage is refused,
  // or was told to end and let go, or its process is gone. A lost process that
  // may still hold its layers keeps the place for kReturnGrace, one that was
  // never reached for `patience`; one that loads keeps it.
  bool vacant(TimePoint now, Duration patience) const;
  bool load_sent() const { return load_sent_; }
  // Whether the stage may have a place, or take that of another one.
  bool available() const {
    return welcomed_ && !refused_ && !leaves_at_.has_value();
  }
  bool linked() const { return link_ != nullptr; }
  bool linked_by(uint64_t link_id) const {
    return linked() && link_id_ == link_id;
  }
  // Whether the stage has said what it is, on this Control stream.
  bool welcomed() const { return welcomed_; }
  TimePoint connect_at() const { return connect_at_; }  // not before
  bool held() const { return held_; }                   // by another gateway
  bool drained() const { return drained_; }
  bool leaving() const { return leaves_at_.has_value(); }  // told to end

  // How long the stage has been silent at `now`. `passed`: when a result last
  // proved that every stage lives.
  Duration Silence(TimePoint now, TimePoint passed) const;
  // When the stage's latest message came.
  TimePoint heard() const { return heard_; }
  // What people see at `now`, but for last_heard and clock. `passed`: as
  // Silence's.
  StageStatus Report(TimePoint now, TimePoint passed, Duration suspect_after,
                     bool pipeline_up) const;
  // "stage 1 (host:7001, layers 15 to 29)".
  std::string Describe() const;

  // How the stage's clock relates to ours, by heartbeats. Any thread.
  ClockEstimate clock(int64_t now_ns) const;

 private:
  void AddRoundTrip(int64_t sent_ns, int64_t stage_ns, int64_t received_ns);

  std::optional<size_t> index_;
  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<ControlLink> link_;
  uint64_t link_id_ = 0;
  TimePoint linked_at_{};
  TimePoint connect_at_{};
  Duration backoff_{};
  bool welcomed_ = false;
  StageFacts facts_;  // of the latest welcome, kept when lost
  StageLoad load_;
  bool seen_ = false;  // has welcomed us at some time
  TimePoint heard_{};
  // When the process last gave a sign of life; before any, since when it is
  // tried.
  TimePoint alive_at_ = Clock::now();
  bool gone_ = false;      // refuses connections
  Heartbeats heartbeats_;  // of this link
  Duration rtt_{};
  StageState down_state_ = StageState::kConnecting;  // while not welcomed
  bool refused_ = false;                             // welcomed, does not fit
  bool load_sent_ = false;                           // on this link
  bool held_ = false;
  std::string message_;
  bool drained_ = false;
  std::optional<TimePoint> leaves_at_;  // at the latest
  mutable Mutex clock_mutex_;
  StageClock clock_ ABSL_GUARDED_BY(clock_mutex_);
};

using StageConnections = std::vector<std::shared_ptr<StageConnection>>;

// The pause after one more failure: twice `last`, 0.1 s to 1 s.
Duration NextBackoff(Duration last);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CONNECTION_H_
