#ifndef SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_
#define SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/core/generate_request.h"
#include "common/core/step_plan.h"
#include "common/engine/admission.h"
#include "common/engine/constraint_notice.h"
#include "common/engine/engine_commands.h"
#include "common/engine/engine_options.h"
#include "common/engine/engine_stats.h"
#include "common/engine/pipeline_gate.h"

namespace sluice {

class EngineThread;

// Runs plans: the pipeline of stages, or a fake. The engine thread calls it; it
// must outlive the EngineLoop.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  // Hands the plan on and returns; never blocks. Every plan gets one
  // EngineLoop::OnStepResult, in the order of submission, or OnPipelineLost.
  virtual void Submit(StepPlan plan) = 0;
  // A result answers no plan. No plan follows until OnPipelineUp with a new
  // epoch, for which the owner rebuilds the pipeline. Never blocks.
  virtual void OnPipelineBroken(Status why) {}
};

// Runs every sequence of one replica, on a thread of its own (EngineThread).
// Here is what all threads share: admission, the inbox, the latest figures. Any
// thread may call the public methods, also from a sink. Only Stop and WaitIdle
// wait for a plan.
//
// The inbox is one list, so commands take effect in the order of the calls.
// Each kind has its own bound: live sequences bound submissions, cancels and
// notices of constraints, kMaxQueuedResults bounds results, and changes of the
// pipeline are rare.
class EngineLoop {
 public:
  // `executor` must outlive the loop.
  EngineLoop(const EngineOptions& options, StepExecutor* executor);
  ~EngineLoop();  // stops
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Starts the thread "engine". INVALID_ARGUMENT for options out of range;
  // FAILED_PRECONDITION if it was started before.
  Status Start();

  // Ends every live sequence with kError UNAVAILABLE "shutting down" and
  // joins the thread. Idempotent. Not from within a sink.
  void Stop();

  // Queues a request. After an error the sink gets no call; else it gets
  // exactly one OnEnd, possibly before this call returns. Refuses with
  // RESOURCE_EXHAUSTED and RetryAfterSeconds if the promised wait is above
  // max_queue_wait or max_queue requests wait; UNAVAILABLE while no pipeline is
  // up (one that recovers counts as up), or draining; INVALID_ARGUMENT for
  // values out of range, or if prompt and max_tokens exceed the context or the
  // KV pool.
  //
  // Of one request_id (see GenerateRequest) only the first needs the promise;
  // twice max_queue bounds the others. After a refusal the caller cancels them.
  StatusOr<SequenceId> Submit(GenerateRequest request,
                              std::shared_ptr<TokenSink> sink);

  // OnEnd(kCancelled) follows unless the sequence has ended.
  void Cancel(SequenceId sequence);

  // Takes the answer to a submitted plan. Drops one of another epoch.
  void OnStepResult(StepResult result);

  // A pipeline of `num_stages` stages is ready for plans of `epoch`, which
  // must be above all earlier ones. Sequences of a lost pipeline are computed
  // again, as far as stages `lost` their KV cache.
  void OnPipelineUp(Epoch epoch, const PlanLimits& limits, int num_stages,
                    const LostStages& lost = {});

  // Suspends all live sequences: they, and new ones, wait for OnPipelineUp.
  // Without one within recovery_timeout all end with kError UNAVAILABLE(why),
  // and Submit refuses. `is_planned`: it counts for no sequence's max_replays.
  void OnPipelineLost(const Status& why, bool is_planned = false);
  // Ends all live sequences with kError and `why`: the lost pipeline is another
  // gateway's. Submit refuses until OnPipelineUp.
  void OnSuperseded(const Status& why);
  // What OnPipelineLost would cost now: the KV blocks to compute again and 1,
  // or 0 if there is no live sequence; INT64_MAX if sequences would end.
  int64_t PauseCost() const {
    MutexLock lock(mutex_);
    if (IsIdle()) return 0;
    return options_.recovery_timeout == Duration::zero()
               ? INT64_MAX
               : 1 + stats_.blocks_used;
  }

  // The pipeline will be lost: running sequences go on, queued and new ones
  // wait for the next pipeline. Without recovery_timeout Submit refuses with
  // `why` instead.
  void OnPipelineLeaving(const Status& why);
  // Whether the pipeline, after OnPipelineLeaving, has nothing to do any more.
  bool rests() const {
    MutexLock lock(mutex_);
    return options_.recovery_timeout == Duration::zero() ? IsIdle()
                                                         : stats_.rests;
  }

  // Refuses new requests from now on; accepted ones go on.
  void BeginDrain() {
    MutexLock lock(mutex_);
    draining_ = true;
  }

  // Whether there is no live sequence and no plan in flight.
  bool idle() const {
    MutexLock lock(mutex_);
    return IsIdle();
  }
  // Waits until idle(). False if `deadline` passed first.
  bool WaitIdle(TimePoint deadline) const;

  EngineStats Stats() const;
  EngineProgress Progress() const;

  // Positions of one sequence on the latest pipeline, prompt and completion
  // together; 0 before the first pipeline.
  int32_t max_context() const { return max_context_; }
  // The most sequences that run at once; a pipeline may take fewer.
  int max_running() const { return options_.max_running; }

 private:
  friend class EngineThread;
  friend class EngineLoopPeer;  // tests play EngineThread with it

  // More than the plans in flight of any pipeline.
  static constexpr size_t kMaxQueuedResults = 256;

  void Push(EngineCommand command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    inbox_.push_back(std::move(command));
    wake_.NotifyOne();
  }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_live_ == 0 && !working_ && stats_.plans_in_flight == 0;
  }
  Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // EngineThread calls the rest.
  // Waits for commands, or `deadline`. False: stop after these.
  bool TakeCommands(TimePoint deadline, std::vector<EngineCommand>& commands);
  // A sequence has ended; its sink is told next.
  void OnEnded(const std::string& request_id) {
    MutexLock lock(mutex_);
    --num_live_;
    admission_.OnEnd(request_id);
  }
  // The pipeline of `epoch` does not work. `is_final`: its sequences end.
  void OnBroken(Epoch epoch, bool is_final) {
    MutexLock lock(mutex_);
    gate_.OnBroken(epoch);
    if (is_final) gate_.OnGivenUp();
  }
  // No request waits for the lost pipeline any more. False if the next one was
  // announced.
  bool GiveUp();
  void Publish(const EngineStats& stats, QueueState queue,
               const ProgressTimes& progress);

  const EngineOptions options_;
  NamedThread thread_;

  mutable Mutex mutex_;
  CondVar wake_;
  mutable CondVar became_idle_;
  std::vector<EngineCommand> inbox_ ABSL_GUARDED_BY(mutex_);
  size_t queued_results_ ABSL_GUARDED_BY(mutex_) = 0;
  // Sequences with a cancel in the inbox.
  std::unordered_set<SequenceId> cancels_ ABSL_GUARDED_BY(mutex_);
  int64_t num_live_ ABSL_GUARDED_BY(mutex_) = 0;  // accepted and not ended
  SequenceId next_id_ ABSL_GUARDED_BY(mutex_){1};
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether the latest pipeline's limits were refused.
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;  // has taken commands
  PipelineGate gate_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int32_t> max_context_{0};  // from the pipeline's limits
  uint64_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_queue_full_ ABSL_GUARDED_BY(mutex_) = 0;
  // Published last by the engine thread.
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  ProgressTimes progress_ ABSL_GUARDED_BY(mutex_);

  // Notices of constraints become commands.
  const std::shared_ptr<ConstraintNoticeBoard> board_;

  const std::unique_ptr<EngineThread> engine_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_
