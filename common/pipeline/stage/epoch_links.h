#ifndef SLUICE_COMMON_PIPELINE_STAGE_EPOCH_LINKS_H_
#define SLUICE_COMMON_PIPELINE_STAGE_EPOCH_LINKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/pipeline/stage/epoch_streams.h"
#include "common/rpc/transport_options.h"
#include "common/stage/stage.h"
#include "common/stage/stage_loop.h"
#include "common/wire/stage.h"

namespace sluice {

class StageMetrics;

struct StageSessionOptions {
  rpc::TransportOptions transport;  // towards the successor
  int32_t max_steps_in_flight = 16;
  StageMetrics* metrics = nullptr;  // outlives the session; may be null
  // Begins to load the layers of `place` and returns; SetLoaded or
  // SetLoadFailed follows. Empty: the stage cannot load other layers.
  std::function<void(const StagePlace& place)> load = nullptr;
};

// The way of steps through a stage, one epoch at a time: from the predecessor
// to the runner, on to the successor or the gateway, and acks back. Any thread:
// one mutex, taken once per step and event. Messages to peers are queued under
// it, in order, and written without it. The runner changes epochs under it.
class EpochLinks : public StepOutputSink {
 public:
  // News of an epoch for the gateway. Called without the mutex.
  struct Events {
    std::function<void(Epoch, const Status&)> on_assigned;
    std::function<void(Epoch, v1::FailureSide, const Status&)> on_failure;
    // No step is under way any more; only after Drain.
    std::function<void()> on_drained;
  };
  // The epoch's figures in heartbeats; zeros without an epoch.
  struct Progress {
    Epoch epoch;
    uint64_t steps_done = 0;
    int64_t hop_ns = 0;  // moving mean over acknowledged steps
  };

  EpochLinks(StageSessionOptions options, Events events);

  // Before Begin, and between epochs when the layers change. Nothing uses the
  // earlier runner once this returns. `runner` null: no layers.
  void SetLoaded(const StageInfo& info, StepRunner* runner);

  // Begins an epoch, and returns the one before for EndStreams. Connect
  // follows: on_assigned comes when the successor has answered.
  std::shared_ptr<EpochStreams> Begin(const Assignment& assignment);
  // Callbacks come while `owner`, which has these links, lives.
  void Connect(const Assignment& assignment, std::weak_ptr<const void> owner);
  // Forgets the epoch, and returns it for EndStreams. `draining`: refuse steps
  // from here on.
  std::shared_ptr<EpochStreams> Release(bool draining);
  // Ends the streams of an epoch that is over; null: none.
  void EndStreams(std::shared_ptr<EpochStreams> ended, const Status& why);

  // Refuses steps from here on. Returns whether none is under way. If one is
  // and the gateway has asked, on_drained follows, unless Release comes before.
  bool Drain(bool is_asked);
  // Waits until no step is under way, or `deadline`.
  void WaitIdle(TimePoint deadline);
  bool draining() const;
  Progress progress() const;
  // StepRunner::Between of the present runner; false without one.
  bool Between(StepRunner::KvWork work);

  // Steps. What the stream needs to check its frames.
  struct InputTerms {
    Assignment assignment;
    int32_t hidden_size = 0;  // of the frames' payload; 0: the first stage
    int32_t first_layer = 0;
  };
  StatusOr<InputTerms> OnStepsHello(const v1::StepsHello& hello,
                                    std::shared_ptr<StepsStream> steps);
  // Queues a step that the stream has checked. `plan`: the plan as received,
  // for the successor.
  Status OnStepInput(StepInput input, v1::StepPlan plan, int64_t wire_bytes);
  void OnStepsEnd(const StepsStream* steps, const Status& status);

  // Results.
  Status OnResults(const v1::ResultsRequest& request,
                   std::shared_ptr<ResultsStream> results);
  void OnResultsEnd(const ResultsStream* results);

  // From the runner's thread.
  void OnStep(StepOutput output) override;
  void OnStepError(Epoch epoch, StepId step, Status why) override;

 private:
  // Returns the epoch's streams; null unless `epoch` is the current one.
  EpochStreams* LiveOf(Epoch epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnNextAck(const v1::StepAck& ack);
  void ConnectNext(const Assignment& assignment,
                   const std::weak_ptr<const void>& owner);
  void OnSampled(const StepResult& result);
  // A stream from this stage to `peer` has ended.
  void OnPeerEnd(Epoch epoch, v1::FailureSide side, const std::string& peer,
                 const Status& status);
  void Answer(Epoch epoch, const Status& status);
  void Fail(Epoch epoch, v1::FailureSide side, const Status& why);
  bool idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StageSessionOptions options_;
  const Events events_;
  Mutex push_mutex_;  // before mutex_; held while a step goes to the runner
  mutable Mutex mutex_;
  CondVar idle_changed_;
  StageInfo info_ ABSL_GUARDED_BY(mutex_);
  StepRunner* runner_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool drain_asked_ ABSL_GUARDED_BY(mutex_) = false;  // and not answered
  std::shared_ptr<EpochStreams> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_EPOCH_LINKS_H_
