#ifndef SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_
#define SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_

#include <memory>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/step_plan.h"
#include "common/engine/engine_options.h"
#include "common/engine/engine_stats.h"

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
  // ended and no plan follows until OnPipelineUp with a new epoch: the owner
  // should rebuild the pipeline. Never blocks.
  virtual void OnPipelineBroken(Status why) {}
};

// Owns every sequence of one replica: one thread admits, plans, commits and
// calls the sinks; the methods below may be called from any thread, also
// from within a sink, and never wait for a plan (Stop and WaitIdle aside).
class EngineLoop {
 public:
  // `executor` must outlive the loop.
  EngineLoop(const EngineOptions& options, StepExecutor* executor);
  ~EngineLoop();  // Stop()
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
  // only against twice max_queue; after a refusal it is the caller who
  // cancels those before it.
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
  void OnPipelineLeaving(const Status& why);

  // Refuses new requests from now on; accepted ones go on.
  void BeginDrain();

  // No live sequence and no plan in flight.
  bool idle() const;
  // False if `deadline` passed first.
  bool WaitIdle(TimePoint deadline) const;

  EngineStats Stats() const;
  EngineProgress Progress() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ENGINE_LOOP_H_
