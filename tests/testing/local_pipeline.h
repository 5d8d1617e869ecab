#ifndef SLUICE_TESTS_TESTING_LOCAL_PIPELINE_H_
#define SLUICE_TESTS_TESTING_LOCAL_PIPELINE_H_

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/engine/engine_loop.h"
#include "common/stage/stage.h"
#include "common/stage/stage_loop.h"

namespace sluice::testing {

// A whole pipeline in one process, without gRPC: each stage's loop hands its
// output to the next one's queue. Make it, make the EngineLoop over it, call
// ConnectTo. Stop comes before the engine is destroyed.
class LocalPipeline : public StepExecutor {
 public:
  // Loads `num_stages` stages; `stage` gives all but the layers.
  static StatusOr<std::unique_ptr<LocalPipeline>> Load(
      const StageOptions& stage, int num_stages);
  ~LocalPipeline() override;

  // Starts the loops and tells `engine` that the pipeline is up, in `epoch`,
  // which must rise from call to call.
  void ConnectTo(EngineLoop* engine, Epoch epoch = Epoch(1));
  // The least of every stage's.
  const PlanLimits& limits() const { return limits_; }
  StageLoopStats stats(int stage) const;
  // The engine hears nothing more. Idempotent.
  void Stop();

  void Submit(StepPlan plan) override;

 private:
  class Link;
  LocalPipeline() = default;
  PlanLimits limits_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<std::unique_ptr<Link>> links_;  // link i takes stage i's output
  std::vector<std::unique_ptr<StageLoop>> loops_;
  EngineLoop* engine_ = nullptr;
  bool started_ = false;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_LOCAL_PIPELINE_H_
