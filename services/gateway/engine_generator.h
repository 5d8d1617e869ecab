#ifndef SLUICE_SERVICES_GATEWAY_ENGINE_GENERATOR_H_
#define SLUICE_SERVICES_GATEWAY_ENGINE_GENERATOR_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "common/core/step_plan.h"
#include "common/engine/engine_loop.h"
#include "common/engine/engine_options.h"
#include "services/gateway/generator.h"

namespace sluice::gateway {

// The engine as handlers see it. `engine` outlives this.
class EngineGenerator : public Generator {
 public:
  explicit EngineGenerator(EngineLoop& engine) : engine_(engine) {}

  StatusOr<SequenceId> Submit(GenerateRequest request,
                              std::shared_ptr<TokenSink> sink) override {
    return engine_.Submit(std::move(request), std::move(sink));
  }
  void Cancel(SequenceId sequence) override { engine_.Cancel(sequence); }
  int max_context() const override { return max_context_; }

  // Told whenever a pipeline comes up.
  void SetLimits(const PlanLimits& limits) {
    max_context_ = static_cast<int>(
        std::min(int64_t{limits.max_context}, MaxPositions(limits)));
  }

 private:
  EngineLoop& engine_;
  std::atomic<int> max_context_{0};
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_ENGINE_GENERATOR_H_
