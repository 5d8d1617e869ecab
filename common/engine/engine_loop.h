#ifndef SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_
#define SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/core/generate_request.h"
#include "common/core/step_plan.h"
#include "common/engine/admission.h"
#include "common/engine/engine_options.h"
#include "common/engine/engine_stats.h"
#include "common/engine/scheduler.h"

namespace sluice {

// What runs plans: the pipeline of stages, or a fake. Called by the engine
// thread; must outlive the EngineLoop.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  // Never blocks: hands the plan on and returns. Every plan is answered by
  // one EngineLoop::OnStepResult, in the order of submission, or by
  // OnPipelineLost.
  virtual void Submit(StepPlan plan) = 0;
  // The pipeline answered what no plan asked for. All live sequences have
  // ended and no plan follows until OnPipelineUp with a new epoch, so that the
  // owner rebuilds the pipeline. Never blocks.
  virtual void OnPipelineBroken(Status why) {}
};

// What the inbox of EngineLoop holds: an accepted request,
struct Submission {
  SequenceId id;
  std::string request_id;
  GenerateRequest request;
  std::shared_ptr<TokenSink> sink;
  int64_t pushed_ns = 0;  // of a traced request
};
// the end of one,
struct CancelCommand {
  SequenceId id;
};
// a new pipeline,
struct PipelineUp {
  Epoch epoch;
  PlanLimits limits;
  int num_stages;
};
// the loss of one,
struct PipelineLost {
  Status why;
};
// news of a pipeline that cannot be used, or an exception of the engine,
struct PipelineBroken {
  Status why;
  bool if_attached = false;  // without a pipeline the news is stale
};
// or the answer to a plan.
using EngineCommand = std::variant<Submission, CancelCommand, StepResult,
                                   PipelineUp, PipelineLost, PipelineBroken>;

// Owns every sequence of one replica: one thread admits, plans, commits and
// calls the sinks (engine_thread.cc); the public methods may be called from
// any thread, also from within a sink, and never wait for a plan (Stop and
// WaitIdle aside).
//
// The inbox is one list, so that commands take effect in the order they were
// given. Each kind has a bound of its own: submissions by the number of live
// sequences, cancels by one for each sequence, results by kMaxQueuedResults,
// the rest by how often pipelines change.
class EngineLoop {
 public:
  // `executor` must outlive the loop.
  EngineLoop(const EngineOptions& options, StepExecutor* executor)
      : options_(options),
        executor_(executor),
        admission_(options),
        scheduler_(options, &counters_) {}
  ~EngineLoop() { Stop(); }
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Starts the thread "engine". INVALID_ARGUMENT for options out of range;
  // FAILED_PRECONDITION if it was started before.
  Status Start();

  // Ends every live sequence with kError UNAVAILABLE "shutting down" and
  // joins the thread. Idempotent. Not from within a sink.
  void Stop();

  // Queues a request. After an error the sink gets no call at all; after an
  // id it gets exactly one OnEnd, possibly before this call returns.
  // Errors: RESOURCE_EXHAUSTED, with RetryAfterSeconds, when the wait that
  // the queue promises is longer than max_queue_wait, or max_queue requests
  // wait; UNAVAILABLE while no pipeline is up, or draining; INVALID_ARGUMENT
  // for values out of range, or when the prompt with max_tokens exceeds the
  // context or the whole KV pool.
  // Choices and prompts of one request: see GenerateRequest. While any of a
  // request_id is live, others of it are not held against max_queue_wait,
  // only against twice max_queue; after a refusal the caller cancels those
  // before it.
  StatusOr<SequenceId> Submit(GenerateRequest request,
                              std::shared_ptr<TokenSink> sink);

  // OnEnd(kCancelled) follows unless the sequence has ended by then.
  void Cancel(SequenceId sequence);

  // The answer to a submitted plan. One of another epoch is dropped.
  void OnStepResult(StepResult result);

  // A pipeline of `num_stages` stages is ready for plans of `epoch`, which
  // must be above all earlier ones. KV blocks and prefix cache start empty.
  void OnPipelineUp(Epoch epoch, const PlanLimits& limits, int num_stages);

  // Ends all live sequences with kError UNAVAILABLE(why). Submit refuses
  // until OnPipelineUp.
  void OnPipelineLost(const Status& why);

  // The pipeline is going to be lost: Submit refuses with `why` until
  // OnPipelineUp; accepted requests go on.
  void OnPipelineLeaving(const Status& why) {
    MutexLock lock(mutex_);
    leaving_ = why;
  }

  // Refuses new requests from now on; accepted ones go on.
  void BeginDrain() {
    MutexLock lock(mutex_);
    draining_ = true;
  }

  // No live sequence and no plan in flight.
  bool idle() const {
    MutexLock lock(mutex_);
    return IsIdle();
  }
  // False if `deadline` passed first.
  bool WaitIdle(TimePoint deadline) const;

  EngineStats Stats() const;
  EngineProgress Progress() const;

  // Positions that one sequence may have on the latest pipeline, prompt and
  // completion together; 0 while no pipeline was ever up.
  int32_t max_context() const { return max_context_; }

 private:
  friend class EngineLoopPeer;  // tests play the engine's thread by it

  // More unread results than any pipeline has plans in flight.
  static constexpr size_t kMaxQueuedResults = 256;

  void Push(EngineCommand command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    inbox_.push_back(std::move(command));
    wake_.NotifyOne();
  }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_live_ == 0 && !working_ && stats_.plans_in_flight == 0;
  }
  Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The engine thread's.
  void Run();
  // Waits for commands or the next deadline. False: stop after these.
  bool TakeCommands(std::vector<EngineCommand>& commands);
  void HandleSafely(EngineCommand& command);
  void Handle(Submission& submission);
  void Handle(CancelCommand& cancel);
  void Handle(StepResult& result);
  void Handle(PipelineUp& up);
  void Handle(PipelineLost& lost);
  void Handle(PipelineBroken& broken);
  void Emit(SequenceEvents events);
  void EndOne(TokenSink& sink, const std::string& request_id, FinalEvent event);
  void SubmitPlans();
  void Publish();

  const EngineOptions options_;
  StepExecutor* const executor_;
  NamedThread thread_;

  mutable Mutex mutex_;
  CondVar wake_;
  mutable CondVar became_idle_;
  std::vector<EngineCommand> inbox_ ABSL_GUARDED_BY(mutex_);
  size_t queued_results_ ABSL_GUARDED_BY(mutex_) = 0;
  // Sequences that the inbox has a cancel of.
  std::unordered_set<SequenceId> cancels_ ABSL_GUARDED_BY(mutex_);
  int64_t num_live_ ABSL_GUARDED_BY(mutex_) = 0;  // accepted and not ended
  SequenceId next_id_ ABSL_GUARDED_BY(mutex_){1};
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;  // on commands taken
  // Of the pipeline that is up; nothing: Submit refuses.
  std::optional<Epoch> up_ ABSL_GUARDED_BY(mutex_);
  Status leaving_ ABSL_GUARDED_BY(mutex_);  // why it will go; OK: it will not
  PlanLimits limits_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int32_t> max_context_{0};  // by `limits_`
  uint64_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_queue_full_ ABSL_GUARDED_BY(mutex_) = 0;
  // What the engine thread last published.
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  TimePoint published_progress_ ABSL_GUARDED_BY(mutex_);
  TimePoint published_oldest_plan_ ABSL_GUARDED_BY(mutex_) = TimePoint::max();
  Duration published_expected_step_ ABSL_GUARDED_BY(mutex_){};

  // The engine thread's own.
  EngineCounters counters_;
  Scheduler scheduler_;
  Epoch epoch_;
  Status why_down_ = Unavailable("no pipeline is up");
  TimePoint last_progress_ = Clock::now();
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_
