#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PROCESS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PROCESS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/stage_identity.h"
#include "common/pipeline/gateway/cluster_actions.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/pipeline/gateway/stage_life.h"

namespace sluice {

// How long a lost process keeps its place after its last sign of life: with a
// broken stream it may still hold its layers, which no spare has yet.
inline constexpr Duration kReturnGrace = std::chrono::seconds(3);
// How long a process that was given up is not tried.
inline constexpr Duration kGivenUpPause = std::chrono::seconds(15);

// What a Welcome says.
struct StageWelcome {
  StageFacts facts;
  Epoch highest;    // that the stage has seen
  std::string run;  // of the stage's process
};

// What an Assigned says of the stage's keys and values.
struct KvAnswer {
  bool kept = false;
  bool copied = false;
  std::string not_copied = {};  // why not
  uint64_t bytes = 0;           // that were copied
};

// A gateway's view of one stage's process: its state, facts and times. A value
// without a stream or a clock, of one thread. What shall be done goes to an
// Outbox.
class StageProcess {
 public:
  // `id`: the process in actions. `now`: from here on its absence counts.
  StageProcess(size_t id, std::string address, TimePoint now);

  // What the gateway does -----------------------------------------------------

  // The stage's place in the pipeline, for people; nothing: it is a spare.
  void SetIndex(std::optional<size_t> index) {
    if (index.has_value() != index_.has_value()) missing_since_.reset();
    index_ = index;
  }
  // Opens Control, in the place of an open stream. `link_id` tells events of
  // this stream from those of an older one. `term`: Hello.term. Ignored where
  // kLifeRows has no row: a process that was told to end is not raised.
  void Hello(uint64_t link_id, uint64_t term, TimePoint now, act::Outbox& out);
  // Assigns `epoch` to the stage. `next`: the successor; null: the stage is the
  // last one. `last`: the stage whose sampled tokens this one reads, or null.
  // Needs a Welcome of all. `donors`: who has the keys and values that the
  // plans of `donors_epoch` left, for the stage to copy.
  void Assign(Epoch epoch, const PipelineLimits& limits,
              const StageProcess* next, const StageProcess* last,
              std::vector<act::KvDonor> donors, Epoch donors_epoch,
              act::Outbox& out);
  // Makes an assignable stage load the layers of `place`, once per stream. The
  // stage ends the stream, or refuses with Assigned. `epoch`: Assign's, the
  // latest one. `shelves`: it keeps what it has in its KV cache on a shelf.
  void AskToLoad(const StagePlace& place, Epoch epoch, act::Outbox& out,
                 bool shelves = false);
  // Takes the process for gone, and tries it again after kGivenUpPause. Needs a
  // Welcome.
  void GiveUp(TimePoint now, act::Outbox& out);
  // Tries a process that was given up at once: it is needed.
  void EndPause(TimePoint now);
  // Notes why the pipeline was refused because of this stage; empty: try again.
  void SetConflict(std::string message);
  // Counts the stage's absence from `now`: the gateway does not try it.
  void NotTried(TimePoint now) { alive_at_ = now; }

  // What befalls it -----------------------------------------------------------

  // Its Control stream is over because of `why`, or ends now. `absence`: the
  // gateway's own reason; nothing: `why` tells it. Sets the time of the next
  // attempt. Ignored without a stream.
  void OnEnd(const Status& why, std::optional<Absence> absence, TimePoint now,
             act::Outbox& out);
  void OnWelcome(StageWelcome welcome);
  void OnHeartbeat(const StageLoad& load, Duration rtt);
  // It has finished its steps; ask for it first.
  void OnDrained() { Apply(life_, LifeEvent::kDrained); }
  // It was told to end, within `remaining`. Ignored before Welcome.
  void OnDraining(Duration remaining, TimePoint now, act::Outbox& out);
  // The answer to an Assign: whether the stage has the KV cache of the epoch
  // before.
  void OnAssigned(Epoch epoch, const KvAnswer& kv, act::Outbox& out);
  // Any message came.
  void OnHeard(TimePoint now) { heard_ = alive_at_ = now; }
  // Plans of `epoch` follow, and change the KV cache of the stage if it `has` a
  // place; else they make it worthless.
  // What is cached is computed again on the stage if it is `lost`, and so its
  // log has all of it.
  void OnUp(Epoch epoch, bool has, bool lost = false) {
    kv_epoch_ = has ? epoch : Epoch(0);
    load_failed_ = false;
    if (lost) log_is_whole_ = true;
    missing_since_.reset();
  }

  // What is known of it -------------------------------------------------------

  size_t id() const { return id_; }
  const std::string& address() const { return facts_.address; }
  // From the latest Welcome; without a model's name before the first.
  const StageFacts& facts() const { return facts_; }
  LifeKind kind() const { return KindOf(life_); }
  bool linked() const { return kind() != LifeKind::kAway; }
  // Whether the stage has sent Welcome on this Control stream.
  bool welcomed() const { return AbsenceOf(life_) == nullptr; }
  bool load_sent() const { return LoadSent(life_); }
  bool drained() const {
    return kind() == LifeKind::kDrained || kind() == LifeKind::kParting;
  }
  bool leaving() const { return LeavesBy(life_) != nullptr; }  // told to end
  bool refused() const { return !conflict_.empty(); }  // see SetConflict
  // Whether the stage may have a place, also that of another stage.
  bool available() const { return welcomed() && !refused() && !leaving(); }
  bool holds(const StagePlace& place) const {
    return welcomed() && !place.empty() && facts_.place() == place;
  }
  // Whether there was no process at the latest attempt, or it is given up.
  bool gone() const {
    return absent_as(Absence::kGone) || absent_as(Absence::kNotStarted) ||
           absent_as(Absence::kGivenUp);
  }
  // Whether the process was reached, and reads its layers.
  bool loading() const { return absent_as(Absence::kLoading); }
  // Whether it could not load layers since the last pipeline.
  bool load_failed() const { return load_failed_; }
  // By another gateway.
  bool held() const { return absent_as(Absence::kHeld); }
  // Whether a spare may have this stage's place at `now`: the stage is refused,
  // or has left, or its process is gone. A lost process keeps its place for
  // kReturnGrace, since it may still hold its layers; one that was never
  // reached for `patience`; one that loads keeps it.
  bool vacant(TimePoint now, Duration patience) const;
  uint64_t link_id() const { return link_id_; }         // of the latest stream
  TimePoint connect_at() const { return connect_at_; }  // not before
  // The highest epoch that the stage knew at its latest Welcome.
  Epoch highest_epoch() const { return highest_epoch_; }
  // Whether the stage has the KV cache of the last pipeline, in `epoch`.
  bool kept(Epoch epoch) const { return kv_epoch_ == epoch; }
  // Whether the stage can hand on what it has cached: a copy has no log.
  bool has_log() const { return facts_.replay_log && log_is_whole_; }
  const StageLoad& load() const { return load_; }  // of the latest heartbeat
  // Notes at `now` whether the stage may serve. Returns how long it has not:
  // since the last pipeline, or since it got its place.
  Duration Missing(TimePoint now) {
    if (!available() && !missing_since_) missing_since_ = now;
    return missing_since_ ? now - *missing_since_ : Duration::zero();
  }
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

 private:
  bool absent_as(Absence why) const {
    const Absence* const is = AbsenceOf(life_);
    return is != nullptr && *is == why;
  }

  const size_t id_;
  std::optional<size_t> index_;
  StageLife life_;
  // Why the pipeline was refused because of the facts; empty: it was not.
  std::string conflict_;
  std::string message_;  // for people
  StageFacts facts_;     // of the latest Welcome, kept when lost
  StageLoad load_;
  Duration rtt_{};
  uint64_t link_id_ = 0;
  TimePoint linked_at_{};
  TimePoint connect_at_{};
  Duration backoff_{};
  TimePoint heard_{};
  std::optional<TimePoint> missing_since_;  // see Missing
  // The process' latest sign of life, or the time of the first attempt.
  TimePoint alive_at_;
  Epoch highest_epoch_;
  std::optional<std::string> run_;  // of the latest Welcome, once there was one
  // The epoch in whose state the stage's KV cache is that of the last pipeline;
  // 0: it is not. And the epoch of the latest Assign.
  Epoch kv_epoch_;
  Epoch assigned_epoch_;
  bool asked_to_copy_ = false;  // by that Assign
  bool log_is_whole_ = true;
  bool load_failed_ = false;
};

using StageProcesses = std::vector<std::shared_ptr<StageProcess>>;

// Returns the pause after one more failure: twice `last`, within bounds.
Duration NextBackoff(Duration last);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_PROCESS_H_
