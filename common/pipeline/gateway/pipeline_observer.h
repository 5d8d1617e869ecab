#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_OBSERVER_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_OBSERVER_H_

#include <cstdint>
#include <utility>

#include "common/base/status.h"
#include "common/core/gateway_role.h"
#include "common/core/ids.h"
#include "common/core/step_plan.h"
#include "common/engine/engine_loop.h"

namespace sluice {

// The owner of a PipelineAssembler, which tells and asks it. OnUp and OnLost
// come from the thread "pipeline", in turn; OnResult from gRPC's threads,
// between the two; the others from the thread "pipeline". No method may wait
// for the assembler, which the observer outlives, or Stop must have returned.
class PipelineObserver {
 public:
  virtual ~PipelineObserver() = default;

  // Plans of `epoch` within `limits` may be submitted.
  virtual void OnUp(Epoch epoch, const PlanLimits& limits, int num_stages,
                    const LostStages& lost) = 0;
  // No plan of the epoch gets a result any more. The status names the stage's
  // index, address and layers, and why.
  virtual void OnLost(const Status& why) = 0;
  virtual void OnResult(StepResult result) = 0;

  // A stage was told to end, and no spare takes its place: no new sequences;
  // live ones may go on.
  virtual void OnLeaving(const Status& why) {}
  // Whether, since OnLeaving, no plan is in flight and none will come. Then the
  // stage is released, and OnLost follows.
  virtual bool IsIdle() { return true; }
  // Whether a plan is in flight for far longer than it should take. Then the
  // stage that has done the fewest steps is lost.
  virtual bool IsStuck() { return false; }
  // An event threw: the pipeline is built anew.
  virtual void OnException(const Status& what) {}
  // As OnLost, in its place where the pipeline ends by choice: a process joins,
  // and no plan is to blame.
  virtual void OnResplit(const Status& why) { OnLost(why); }
  // With a lease, after OnLost: another gateway has taken the stages, and
  // computes what clients ask for.
  virtual void OnSuperseded(const Status& why) {}
  // What the other gateways of the stages say. Asked after every event; counts
  // with a lease.
  virtual PeerLead LeadOfPeers() { return PeerLead::kNone; }
  // What a pause costs now, in any unit: 0 when nothing runs, INT64_MAX if it
  // may not be.
  virtual int64_t PauseCost() { return 0; }
};

// The engine as the pipeline's owner. `engine` lives as long as the observer is
// told anything.
class EngineObserver : public PipelineObserver {
 public:
  explicit EngineObserver(EngineLoop* engine) : engine_(engine) {}

  void OnUp(Epoch epoch, const PlanLimits& limits, int num_stages,
            const LostStages& lost) override {
    engine_->OnPipelineUp(epoch, limits, num_stages, lost);
  }
  void OnLost(const Status& why) override { engine_->OnPipelineLost(why); }
  void OnResult(StepResult result) override {
    engine_->OnStepResult(std::move(result));
  }
  void OnLeaving(const Status& why) override {
    engine_->OnPipelineLeaving(why);
  }
  bool IsIdle() override { return engine_->rests(); }
  bool IsStuck() override {
    const EngineProgress progress = engine_->Progress();
    return progress.oldest_plan_age > GivenUpAfter(progress.expected_step);
  }
  void OnResplit(const Status& why) override {
    engine_->OnPipelineLost(why, /*is_planned=*/true);
  }
  void OnSuperseded(const Status& why) override { engine_->OnSuperseded(why); }
  int64_t PauseCost() override { return engine_->PauseCost(); }

 private:
  EngineLoop* const engine_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_OBSERVER_H_
