#include "services/cli/bench/model_run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/device/cpu/cpu_options.h"
#include "common/model_config/weights_mode.h"
#include "common/stage/stage.h"
#include "common/tools/measure/stage_steps.h"

namespace sluice::cli {
namespace {

constexpr int32_t kStepTokens = 512;

int32_t BlocksOf(int32_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

// Tokens of each sequence of `run` with the step's own.
int32_t LengthOf(const StepRun& run) { return run.context + run.kind.tokens; }

// Returns `kinds` as a model with `positions` positions can have them: a
// decode step after `context` tokens, a prefill at the beginning.
std::vector<StepRun> Fitted(const std::vector<StepKind>& kinds, int32_t context,
                            int32_t positions) {
  std::vector<StepRun> runs;
  for (StepKind kind : kinds) {
    kind.tokens = std::min({kind.tokens, positions, kStepTokens / kind.batch});
    const bool decode = kind.tokens == 1;
    runs.push_back({kind, decode ? std::min(context, positions - 1) : 0, {}});
  }
  return runs;
}

// Sets what the stage has room for: every run's sequences at once.
void SetRoom(const std::vector<StepRun>& runs, StageOptions& stage) {
  stage.max_step_tokens = kStepTokens;
  stage.max_sequences = 1;
  stage.max_context = 1;
  for (const StepRun& run : runs) {
    stage.max_sequences = std::max(stage.max_sequences, run.kind.batch);
    stage.max_context = std::max(stage.max_context, LengthOf(run));
    stage.kv_blocks += run.kind.batch * BlocksOf(LengthOf(run));
  }
}

// The sequences of `run`, with their context computed.
measure::StageSteps Prefilled(Stage* stage, const StepRun& run,
                              int32_t first_block) {
  measure::StageSteps steps(stage, run.kind.batch, LengthOf(run),
                            measure::Greedy(), first_block);
  const int32_t most = kStepTokens / run.kind.batch;
  for (int32_t done = 0; done < run.context; done += most) {
    steps.Step(std::min(most, run.context - done));
  }
  return steps;
}

}  // namespace

StatusOr<ModelRun> MeasureModel(const ModelBenchOptions& options,
                                const std::vector<StepKind>& kinds,
                                const RoundProgress& progress) {
  measure::StepOps ops;
  StageOptions stage_options;
  stage_options.model_path = options.model;
  stage_options.threads = options.threads;
  stage_options.isa = options.isa;
  stage_options.make_backends = measure::TimedBackends(&ops);
  SLUICE_ASSIGN_OR_RETURN(stage_options.weights,
                          ParseWeightsMode(options.weights));
  SLUICE_ASSIGN_OR_RETURN(const CpuIsa isa, ParseIsa(options.isa));
  SLUICE_ASSIGN_OR_RETURN(const StageInfo model,
                          Stage::Describe(stage_options));
  ModelRun run;
  run.steps = Fitted(kinds, options.context, model.limits.max_context);
  SetRoom(run.steps, stage_options);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Stage> stage,
                          Stage::Load(stage_options));
  run.info = stage->info();

  std::vector<measure::StageSteps> steps;
  int32_t block = 0;
  for (const StepRun& of_kind : run.steps) {
    steps.push_back(Prefilled(stage.get(), of_kind, block));
    block += of_kind.kind.batch * BlocksOf(LengthOf(of_kind));
    steps.back().Step(of_kind.kind.tokens);  // warm
  }
  measure::LimitProbe probe({run.info.threads, isa.dot, isa.vectors});
  for (int32_t round = 0; round < options.rounds; ++round) {
    progress(round);
    for (size_t i = 0; i < steps.size(); ++i) {
      StepRun& of_kind = run.steps[i];
      StepRound& measured = of_kind.rounds.emplace_back();
      measured.limits = probe.Measure();
      steps[i].Rewind(of_kind.context);
      measured.seconds = steps[i].Step(of_kind.kind.tokens);
      measured.ops = ops;
    }
  }
  return run;
}

}  // namespace sluice::cli
