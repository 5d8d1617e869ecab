#ifndef SLUICE_COMMON_ENGINE_ENGINE_IMPL_H_
#define SLUICE_COMMON_ENGINE_ENGINE_IMPL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "common/engine/admission.h"
#include "common/engine/engine_loop.h"
#include "common/engine/scheduler.h"

namespace sluice {

// EngineLoop's inside. Below "The engine thread" are the methods of the thread
// "engine" alone (engine_thread.cc); the others are any thread's
// (engine_loop.cc).
//
// The inbox is one list, so that commands take effect in the order they were
// given. Each kind has a bound of its own, so no caller can crowd out another:
// submissions by the number of live sequences, cancels by one for each of
// them, results by kMaxQueuedResults, the rest by how often pipelines change.
class EngineLoop::Impl {
 public:
  // More unread results than any pipeline has plans in flight.
  static constexpr size_t kMaxQueuedResults = 256;

  Impl(const EngineOptions& options, StepExecutor* executor)
      : options_(options),
        executor_(executor),
        admission_(options),
        scheduler_(options, &counters_) {}

  Status Start();
  void Stop();
  StatusOr<SequenceId> Submit(GenerateRequest request,
                              std::shared_ptr<TokenSink> sink);
  void Cancel(SequenceId id);
  void OnStepResult(StepResult result);
  void OnPipelineUp(Epoch epoch, const PlanLimits& limits, int num_stages);
  void OnPipelineLost(const Status& why);
  void OnPipelineLeaving(const Status& why);
  void BeginDrain();
  bool idle() const;
  bool WaitIdle(TimePoint deadline) const;
  EngineStats Stats() const;
  EngineProgress Progress() const;

 private:
  // What the inbox holds.
  struct Submission {
    SequenceId id;
    GenerateRequest request;
    std::shared_ptr<TokenSink> sink;
    int64_t pushed_ns = 0;  // of a traced request
  };
  struct Live {
    std::string request_id;
    bool cancelled = false;
  };
  struct CancelCommand {
    SequenceId id;
  };
  struct PipelineUp {
    Epoch epoch;
    PlanLimits limits;
    int num_stages;
  };
  struct PipelineLost {
    Status why;
  };
  struct ResultFlood {};
  struct BadLimits {
    Status why;
  };
  using Command =
      std::variant<Submission, CancelCommand, StepResult, PipelineUp,
                   PipelineLost, ResultFlood, BadLimits>;

  // The engine thread.
  void Run();
  // Waits for commands or the next deadline. False: stop after these.
  bool TakeCommands(std::vector<Command>& commands);
  // An exception ends the sequence that it is about, or, where the scheduler
  // may have been in the middle of something, all of them.
  void HandleSafely(Command& command);
  void OnException(const Status& what);
  void Handle(Submission& submission);
  void Handle(CancelCommand& cancel);
  void Handle(StepResult& result);
  void Handle(PipelineUp& up);
  void Handle(PipelineLost& lost);
  void Handle(ResultFlood& flood);
  void Handle(BadLimits& bad);
  void GiveUpPipeline(const Status& why);
  void GiveUpSafely(const Status& why);  // it throws nothing
  void Emit(SequenceEvents events);
  void EndOne(SequenceId id, FinalEvent event);
  void TellEnd(TokenSink& sink, FinalEvent event);
  // Of a start or a step, which a sink may miss: its tokens come all the same.
  void Tell(const std::function<void()>& sink);
  void TellStep(StepTrace trace, int64_t handled_ns);
  void TellStarts(const StepPlan& plan);
  void SubmitPlans();
  void Publish();

  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return live_.empty() && !working_ && stats_.plans_in_flight == 0;
  }
  Status Admit(const GenerateRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Push(Command command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EngineOptions options_;
  StepExecutor* const executor_;
  NamedThread thread_;

  mutable Mutex mutex_;
  CondVar wake_;
  mutable CondVar became_idle_;
  std::vector<Command> inbox_ ABSL_GUARDED_BY(mutex_);
  size_t queued_results_ ABSL_GUARDED_BY(mutex_) = 0;
  // Accepted and not ended.
  std::unordered_map<SequenceId, Live> live_ ABSL_GUARDED_BY(mutex_);
  SequenceId next_id_ ABSL_GUARDED_BY(mutex_){1};
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;  // on commands taken
  // Of the pipeline that is up; nothing: Submit refuses.
  std::optional<Epoch> up_ ABSL_GUARDED_BY(mutex_);
  Status leaving_ ABSL_GUARDED_BY(mutex_);  // why it will go; OK: it will not
  PlanLimits limits_ ABSL_GUARDED_BY(mutex_);
  uint64_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_queue_full_ ABSL_GUARDED_BY(mutex_) = 0;
  // What the engine thread last published.
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  TimePoint published_progress_ ABSL_GUARDED_BY(mutex_);
  // Nothing: no plan is in flight.
  std::optional<TimePoint> published_oldest_plan_ ABSL_GUARDED_BY(mutex_);
  Duration published_expected_step_ ABSL_GUARDED_BY(mutex_){};

  // The engine thread's own.
  EngineCounters counters_;
  Scheduler scheduler_;
  Epoch epoch_;
  Status why_down_ = Unavailable("no pipeline is up");
  std::unordered_map<SequenceId, std::shared_ptr<TokenSink>> sinks_;
  TimePoint last_progress_ = Clock::now();
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ENGINE_IMPL_H_
