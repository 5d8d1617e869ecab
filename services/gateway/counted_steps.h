#ifndef SLUICE_SERVICES_GATEWAY_COUNTED_STEPS_H_
#define SLUICE_SERVICES_GATEWAY_COUNTED_STEPS_H_

#include <utility>

#include "common/engine/engine_loop.h"
#include "services/gateway/gateway_metrics.h"

namespace sluice::gateway {

// The pipeline as the engine sees it: metrics are told how many tokens each
// plan has; probes have none and are not counted. Both outlive this.
class CountedSteps : public StepExecutor {
 public:
  CountedSteps(StepExecutor* pipeline, const GatewayMetrics* metrics)
      : pipeline_(pipeline), metrics_(metrics) {}

  void Submit(StepPlan plan) override {
    if (!plan.chunks.empty()) metrics_->OnStep(plan.num_tokens());
    pipeline_->Submit(std::move(plan));
  }
  void OnPipelineBroken(Status why) override {
    pipeline_->OnPipelineBroken(std::move(why));
  }

 private:
  StepExecutor* const pipeline_;
  const GatewayMetrics* const metrics_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_COUNTED_STEPS_H_
