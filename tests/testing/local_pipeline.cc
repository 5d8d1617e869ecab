#include "tests/testing/local_pipeline.h"

#include <algorithm>
#include <utility>

#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/placement/layer_loads.h"
#include "common/weights/model_file.h"

namespace sluice::testing {
namespace {

constexpr int kMaxQueuedSteps = 64;

void TakeLeast(const PlanLimits& other, PlanLimits* limits) {
  const auto least = [](int32_t& value, int32_t v) {
    value = std::min(value, v);
  };
  least(limits->max_step_tokens, other.max_step_tokens);
  least(limits->max_sequences, other.max_sequences);
  least(limits->max_context, other.max_context);
  least(limits->num_blocks, other.num_blocks);
}

}  // namespace

class LocalPipeline::Link : public StepOutputSink {
 public:
  Link(LocalPipeline* pipeline, size_t stage)
      : pipeline_(*pipeline), stage_(stage) {}

  void OnStep(StepOutput output) override {
    if (output.result.has_value()) {
      if (stage_ > 0) pipeline_.loops_.front()->OnSampled(*output.result);
      pipeline_.engine_->OnStepResult(*std::move(output.result));
      return;
    }
    const Status status = pipeline_.loops_[stage_ + 1]->Push(
        {std::move(output.plan), std::move(output.hidden),
         std::move(output.failed)});
    if (!status.ok()) pipeline_.engine_->OnPipelineLost(status);
  }
  void OnStepError(Epoch epoch, StepId step, Status why) override {
    pipeline_.engine_->OnPipelineLost(
        Annotate(why, "stage ", stage_, ", step ", step));
  }

 private:
  LocalPipeline& pipeline_;
  const size_t stage_;
};

StatusOr<std::unique_ptr<LocalPipeline>> LocalPipeline::Load(
    const StageOptions& stage, int num_stages) {
  SLUICE_ASSIGN_OR_RETURN(const auto model, OpenModel(stage.model_path));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<LayerRange> ranges,
      SplitLayers(
          LoadsOf(config, *model,
                  {stage.weights, &stage.placement, stage.kv_blocks,
                   stage.max_context, stage.max_step_tokens, stage.ranks}),
          num_stages));
  std::unique_ptr<LocalPipeline> pipeline(new LocalPipeline());
  for (const LayerRange& range : ranges) {
    StageOptions options = stage;
    options.first_layer = range.first;
    options.last_layer = range.last;
    SLUICE_ASSIGN_OR_RETURN(auto loaded, Stage::Load(options));
    if (pipeline->stages_.empty()) pipeline->limits_ = loaded->info().limits;
    TakeLeast(loaded->info().limits, &pipeline->limits_);
    const size_t index = pipeline->stages_.size();
    pipeline->links_.push_back(std::make_unique<Link>(pipeline.get(), index));
    pipeline->loops_.push_back(std::make_unique<StageLoop>(
        loaded.get(), pipeline->links_.back().get(), kMaxQueuedSteps));
    pipeline->stages_.push_back(std::move(loaded));
  }
  return pipeline;
}

LocalPipeline::~LocalPipeline() { Stop(); }

void LocalPipeline::Stop() {
  // A loop hands on to the next one, so the first goes first.
  for (const auto& loop : loops_) loop->Stop();
}

void LocalPipeline::ConnectTo(EngineLoop* engine, Epoch epoch) {
  engine_ = engine;
  for (const auto& loop : loops_) {
    if (!started_) loop->Start();
    loop->Reset(epoch);
  }
  started_ = true;
  engine->OnPipelineUp(epoch, limits_, static_cast<int>(stages_.size()));
}

StageLoopStats LocalPipeline::stats(int stage) const {
  return loops_[static_cast<size_t>(stage)]->Stats();
}

void LocalPipeline::Submit(StepPlan plan) {
  const Status status = loops_.front()->Push({std::move(plan), {}});
  if (!status.ok()) engine_->OnPipelineLost(status);
}

}  // namespace sluice::testing
