#ifndef SLUICE_COMMON_ENGINE_ENGINE_THREAD_H_
#define SLUICE_COMMON_ENGINE_ENGINE_THREAD_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/ids.h"
#include "common/engine/constraint_steps.h"
#include "common/engine/engine_commands.h"
#include "common/engine/engine_loop.h"
#include "common/engine/engine_options.h"
#include "common/engine/engine_stats.h"
#include "common/engine/scheduler.h"

namespace sluice {

// The thread "engine": owns every sequence. Takes EngineLoop's commands, gives
// plans to the executor and events to the sinks. EngineLoop owns it.
class EngineThread {
 public:
  // `loop` and `executor` must outlive it. `notice`: see Scheduler.
  EngineThread(EngineLoop* loop, const EngineOptions& options,
               StepExecutor* executor, ConstraintSteps::Notice notice)
      : options_(options),
        loop_(*loop),
        executor_(*executor),
        scheduler_(options_, &counters_, std::move(notice)) {}

  // The thread's body: until the loop stops.
  void Run();

 private:
  void HandleSafely(EngineCommand& command);
  void Handle(Submission& submission);
  void Handle(CancelCommand& cancel);
  void Handle(ConstraintReady& ready);
  void Handle(StepResult& result);
  void Handle(PipelineUp& up);
  void Handle(PipelineLeaving& leaving);
  void Handle(PipelineLost& lost);
  void Handle(PipelineBroken& broken);
  // Suspends the sequences; without recovery_timeout they end with `why`.
  void LosePipeline(Status why, bool is_planned = false);
  void GiveUpIfLate(TimePoint now);
  void Emit(SequenceEvents events);
  void EndOne(TokenSink& sink, const std::string& request_id, FinalEvent event);
  void SubmitPlans();
  void Publish();

  const EngineOptions options_;
  EngineLoop& loop_;
  StepExecutor& executor_;
  EngineCounters counters_;
  EngineStats stats_;  // the latest that were published
  Scheduler scheduler_;
  Epoch epoch_;
  Status why_down_ = Unavailable("no pipeline is up");
  TimePoint give_up_at_ = TimePoint::max();  // suspended sequences
  TimePoint last_progress_ = Clock::now();
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ENGINE_THREAD_H_
