#ifndef SLUICE_COMMON_PIPELINE_STAGE_STAGE_SESSION_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STAGE_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log_limit.h"
#include "common/base/mutex.h"
#include "common/pipeline/stage/epoch_links.h"
#include "common/pipeline/stage/kv_copy.h"
#include "common/pipeline/stage/kv_source.h"
#include "common/pipeline/stage/stage_holder.h"
#include "common/pipeline/stage/stage_terms.h"
#include "common/stage/stage.h"
#include "common/wire/stage.h"

namespace sluice {

class ControlStream;

// What an Assign has left of a stage's keys and values; see v1::Assigned.
struct KvOutcome {
  bool kept = false;
  std::optional<KvCopied> copied = std::nullopt;  // only with donors
};

// The gateway's hold on a stage: which gateway holds it, the answers on
// Control, drain and end. EpochLinks has the steps. Any thread: one mutex,
// never held while writing to a peer. An epoch begins and ends under it, so
// that one gateway's end does not touch the next one's epoch. Streams and
// callbacks hold shared references.
class StageSession : public std::enable_shared_from_this<StageSession> {
 public:
  explicit StageSession(StageSessionOptions options);
  ~StageSession();

  // The links that steps and results pass; the runner's sink.
  EpochLinks& links() { return links_; }

  // While loading: hellos get UNAVAILABLE with this text, and the reason in the
  // status' details.
  void SetLoading(std::string progress);
  // Welcomes gateways from now on. `runner` must live until an Assign makes the
  // stage load other layers, or outlive every stream. Null, for an assignable
  // stage: no layers yet.
  void SetLoaded(const StageInfo& info, StepRunner* runner);
  // The layers of an Assign cannot be loaded: the gateway that sent it gets
  // `why`, once. `info`: of the stage without layers.
  void SetLoadFailed(const StageInfo& info, const Status& why);

  // Answers a hello, or refuses it. A gateway with the secret of the holding
  // run replaces its stream; another gateway replaces only one that was silent
  // for its lease, at most the peer timeout. A gateway that had layers loaded
  // holds the stage until it comes back for them.
  StatusOr<v1::Welcome> OnHello(const v1::Hello& hello,
                                std::shared_ptr<ControlStream> control);
  // Answers with Assigned through the stream, at once or when the successor has
  // answered. No answer if another stream has replaced `control`.
  void OnAssign(const v1::Assign& assign, const ControlStream* control);
  // Returns what another stage may copy, which it reads until the last
  // reference goes. Errors: see Blocks.
  StatusOr<std::shared_ptr<KvSource>> OnBlocks(const v1::BlocksHello& hello);
  v1::HeartbeatReply OnHeartbeat(const v1::Heartbeat& heartbeat,
                                 const ControlStream* control);
  // Logs that a hello from `peer` was refused. `waits`: the gateway stands by
  // until the stage is free, and that it waits is no news.
  void OnRefused(const std::string& peer, const Status& why, bool waits);
  // Sets what heartbeats say from now on.
  void SetExpertsMissing(bool missing);
  // While the loop stands still, hellos get UNAVAILABLE, and an Assign ends its
  // Control stream with it: no gateway holds a stage that may have to end.
  void SetStanding(bool standing);
  // Answers with Drained when no step is under way. Holds until the Control
  // stream ends; the next gateway is welcome.
  void OnDrain(const ControlStream* control);
  void OnControlEnd(const ControlStream* control);
  // Forgets the term, and ends the stream of the gateway that holds the stage.
  // Returns the term until now. `peer`: whose wish it is, for the log.
  // FAILED_PRECONDITION, naming the epoch, if the gateway has begun one.
  StatusOr<uint64_t> ResetTerm(const std::string& peer);

  // Announces to the gateway that this stage ends. Takes no other gateway and
  // no new epoch, and goes on with the present one. Returns when no gateway
  // holds the stage, or at `deadline`.
  void Leave(TimePoint deadline);
  // Takes no new epoch and no new step. Returns when no step is under way, or
  // at `deadline`.
  void Drain(TimePoint deadline);
  // Ends every stream with UNAVAILABLE, and refuses all gateways.
  void Shutdown();

  bool draining() const;  // or leaving
  // By a gateway that was heard within the peer timeout: the end of its stream
  // may wait for a lock of a loop that stands still.
  bool held() const;

 private:
  v1::Welcome MakeWelcome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status CheckAssign(const v1::Assign& assign,
                     const PipelineLimits& limits) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // An epoch that is over.
  struct EndedEpoch {
    std::shared_ptr<EpochStreams> streams;
    std::shared_ptr<KvCopy> copy;  // that it waited for; null: none
  };
  // Forgets the epoch, and returns it for End. As EpochLinks::Release.
  EndedEpoch Release(bool draining) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends what is left of an epoch.
  void End(EndedEpoch ended, const Status& why);
  // Drops the layers and the gateway's stream, which the caller ends, and holds
  // the stage for the gateway. `told`: the answer to hellos. Returns the epoch
  // for End.
  EndedEpoch Unload(std::string told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  EpochLinks::Events LinkEvents();
  // Begins to copy what the donors have, before the epoch's streams are opened;
  // nothing is copied without donors.
  std::shared_ptr<KvCopy> MakeCopy(const v1::Assign& assign,
                                   const Assignment& assignment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnCopied(const Assignment& assignment, const KvCopied& copied);
  // Puts keys and values on the shelf, and then has other layers loaded.
  void ShelveAndLoad(const StagePlace& place, bool shelves);
  // The gateway's stream; null: there is none.
  std::shared_ptr<ControlStream> control() const;

  const StageSessionOptions options_;
  const std::string run_;  // Welcome.run
  // Any client may come and go as often as it likes.
  LogLimit visits_{20, std::chrono::seconds(1)};
  LogLimit refusals_{5, std::chrono::seconds(60)};
  EpochLinks links_;
  Mutex stats_mutex_;  // before mutex_; held while the runner gives its stats
  mutable Mutex mutex_;
  CondVar released_;
  std::string loading_ ABSL_GUARDED_BY(mutex_) = "loading";
  bool loaded_ ABSL_GUARDED_BY(mutex_) = false;  // gateways are welcome
  std::optional<Status> load_failure_ ABSL_GUARDED_BY(mutex_);  // not told yet
  StageInfo info_ ABSL_GUARDED_BY(mutex_);
  StepRunner* runner_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool experts_missing_ ABSL_GUARDED_BY(mutex_) = false;
  bool standing_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;        // for good; steps go on
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;  // draining for good
  std::shared_ptr<ControlStream> control_ ABSL_GUARDED_BY(mutex_);
  StageHolder holder_ ABSL_GUARDED_BY(mutex_);
  StageTerms terms_ ABSL_GUARDED_BY(mutex_);
  // That gateway's epoch whose plans left the keys and values; 0: none.
  Epoch kv_epoch_ ABSL_GUARDED_BY(mutex_);
  KvOutcome kv_ ABSL_GUARDED_BY(mutex_);  // of the latest Assign
  KvOffers offers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<KvSource>> readers_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<KvCopy> copy_ ABSL_GUARDED_BY(mutex_);  // of that Assign
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STAGE_SESSION_H_
