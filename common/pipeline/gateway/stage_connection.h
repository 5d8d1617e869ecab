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
#include "common/pipeline/gateway/stage_life.h"
#include "common/pipeline/gateway/stage_links.h"

namespace sluice {

// How long a lost process keeps its place after its last sign of life: with a
// broken stream it may still hold its layers, which no spare has yet.
inline constexpr Duration kReturnGrace = std::chrono::seconds(3);
// How long a process that was given up is not tried.
inline constexpr Duration kGivenUpPause = std::chrono::seconds(15);

// The gateway's connection to one stage's process: its Control stream, the
// stage's facts and state, and its clock. The thread "pipeline" calls every
// method but clock().
class StageConnection {
 public:
  StageConnection(std::string address, std::shared_ptr<grpc::Channel> control);

  // The stage's place in the pipeline, for people; nothing: it is a spare.
  void SetIndex(std::optional<size_t> index) {
    if (index.has_value() != index_.has_value()) missing_since_.reset();
    index_ = index;
  }

  // Opens Control with `hello`, in the place of an open stream, which the stage
  // ends. `term`: Hello.term. `link_id` tells events of this stream from
  // those of an older one. `on_message` gets the stage's messages and when they
  // came (nanoseconds), `on_end` the stream's end, never OK. Both run on the
  // thread "pipeline".
  void Connect(
      const v1::Hello& hello, uint64_t term, uint64_t link_id,
      const std::shared_ptr<PipelineEvents>& events,
      std::function<void(const v1::ControlResponse&, int64_t)> on_message,
      std::function<void(const Status&)> on_end);
  // Forgets the stream because of `why`, and sets the time of the next attempt.
  // `absence`: the gateway's own reason; nothing: `why` tells it. Returns the
  // stream, for the caller to half-close or cancel. Needs a link.
  std::shared_ptr<ControlLink> End(
      const Status& why, std::optional<Absence> absence = std::nullopt);
  // Takes in a message. An error: the gateway cannot work with the Welcome.
  Status OnMessage(const v1::ControlResponse& response, int64_t received_ns);

  // None waits. All need a link; SendAssign needs a Welcome of both stages.
  void Send(v1::ControlRequest request);
  void SendHeartbeat(uint64_t sequence);
  // `next`: the successor; null: none. `last`: the stage whose sampled tokens
  // this one reads; null: none.
  void SendAssign(const wire::PipelineName& name, const PipelineLimits& limits,
                  const StageConnection* next,
                  const StageConnection* last = nullptr);
  // Notes the answer to the latest SendAssign: whether the stage `kept` the KV
  // cache of the epoch before.
  void OnAssigned(const v1::Assigned& assigned);
  // Plans of `epoch` follow, and change the KV cache of the stage if it `has` a
  // place; else they make it worthless.
  void OnUp(Epoch epoch, bool has) {
    kv_epoch_ = has ? epoch : Epoch(0);
    missing_since_.reset();
  }
  // Takes the process for gone, and tries it again after kGivenUpPause. Needs a
  // Welcome.
  void GiveUp();
  // Tries a process that was given up at once: it is needed.
  void EndPause();
  // Whether the stage has the KV cache of the last pipeline, in `epoch`.
  bool kept(Epoch epoch) const { return kv_epoch_ == epoch; }
  // Makes an assignable stage load the layers of `place`, once per stream. The
  // stage ends the stream, or refuses with Assigned.
  void SendLoad(const wire::PipelineName& name, const StagePlace& place);

  // Notes why the pipeline was refused because of this stage; empty: try again.
  void SetConflict(std::string message);
  // Counts the stage's absence from `now`: the gateway does not try it.
  void NotTried(TimePoint now) { alive_at_ = now; }
  // Notes at `now` whether the stage may serve. Returns how long it has not:
  // since the last pipeline, or since it got its place.
  Duration Missing(TimePoint now) {
    if (!available() && !missing_since_) missing_since_ = now;
    return missing_since_ ? now - *missing_since_ : Duration::zero();
  }

  const std::string& address() const { return address_; }
  // From the latest Welcome; without a model's name before the first.
  const StageFacts& facts() const { return facts_; }
  bool holds(const StagePlace& place) const {
    return welcomed() && !place.empty() && facts_.place() == place;
  }
  // Whether a spare may have this stage's place at `now`: the stage is refused,
  // or has left, or its process is gone. A lost process keeps its place for
  // kReturnGrace, since it may still hold its layers; one that was never
  // reached for `patience`; one that loads keeps it.
  bool vacant(TimePoint now, Duration patience) const;
  // Whether there was no process at the latest attempt, or it is given up.
  bool gone() const {
    return absent_as(Absence::kGone) || absent_as(Absence::kNotStarted) ||
           absent_as(Absence::kGivenUp);
  }
  bool load_sent() const { return kind() == LifeKind::kAsked; }
  // Whether the stage may have a place, also that of another stage.
  bool available() const { return welcomed() && !refused() && !leaving(); }
  bool refused() const { return !conflict_.empty(); }  // see SetConflict
  // Whether the process was reached, and reads its layers.
  bool loading() const { return absent_as(Absence::kLoading); }
  LifeKind kind() const { return KindOf(life_); }
  uint64_t link_id() const { return link_id_; }  // of the latest stream
  bool linked() const { return link_ != nullptr; }
  // Whether the stage has sent Welcome on this Control stream.
  bool welcomed() const { return AbsenceOf(life_) == nullptr; }
  const StageLoad& load() const { return load_; }  // of the latest heartbeat
  TimePoint connect_at() const { return connect_at_; }  // not before
  // By another gateway.
  bool held() const { return absent_as(Absence::kHeld); }
  // The highest epoch that the stage knew at its latest Welcome.
  Epoch highest_epoch() const { return highest_epoch_; }
  bool drained() const {
    return kind() == LifeKind::kDrained || kind() == LifeKind::kParting;
  }
  bool leaving() const { return LeavesBy(life_) != nullptr; }  // told to end

  // Returns how long the stage has been silent at `now`. `passed`: the time of
  // the latest result, which proves that every stage lives.
  Duration Silence(TimePoint now, TimePoint passed) const;
  // When the stage's latest message came.
  TimePoint heard() const { return heard_; }
  // Returns what people see at `now`, but for last_heard and clock. `passed`:
  // as for Silence.
  StageStatus Report(TimePoint now, TimePoint passed, Duration suspect_after,
                     bool pipeline_up) const;
  // "stage 1 (host:7001, layers 15 to 29)".
  std::string Describe() const;

  // The stage's clock against the gateway's, from heartbeats. Any thread.
  ClockEstimate clock(int64_t now_ns) const;

 private:
  void AddRoundTrip(int64_t sent_ns, int64_t stage_ns, int64_t received_ns);
  bool absent_as(Absence why) const {
    const Absence* const is = AbsenceOf(life_);
    return is != nullptr && *is == why;
  }

  std::optional<size_t> index_;
  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  StageLife life_;
  std::shared_ptr<ControlLink> link_;  // unless away
  uint64_t link_id_ = 0;
  TimePoint linked_at_{};
  TimePoint connect_at_{};
  Duration backoff_{};
  StageFacts facts_;  // of the latest Welcome, kept when lost
  StageLoad load_;
  TimePoint heard_{};
  std::optional<TimePoint> missing_since_;  // see Missing
  // The process' latest sign of life, or the time of the first attempt.
  TimePoint alive_at_ = Clock::now();
  Heartbeats heartbeats_;  // of this link
  Duration rtt_{};
  // Why the pipeline was refused because of the facts; empty: it was not.
  std::string conflict_;
  Epoch highest_epoch_;
  std::optional<std::string> run_;  // of the latest Welcome, once there was one
  // The epoch in whose state the stage's KV cache is that of the last pipeline;
  // 0: it is not. And the epoch of the latest SendAssign.
  Epoch kv_epoch_;
  Epoch assigned_epoch_;
  std::string message_;
  mutable Mutex clock_mutex_;
  StageClock clock_ ABSL_GUARDED_BY(clock_mutex_);
};

using StageConnections = std::vector<std::shared_ptr<StageConnection>>;

// Returns the pause after one more failure: twice `last`, within bounds.
Duration NextBackoff(Duration last);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CONNECTION_H_
