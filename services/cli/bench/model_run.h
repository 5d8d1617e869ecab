#ifndef SLUICE_SERVICES_CLI_BENCH_MODEL_RUN_H_
#define SLUICE_SERVICES_CLI_BENCH_MODEL_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/stage/stage_info.h"
#include "common/tools/measure/limits.h"
#include "common/tools/measure/op_times.h"

namespace sluice::cli {

// The command line of `sluice bench kernels` and `sluice bench layers`.
struct ModelBenchOptions {
  std::string model;             // folder or GGUF
  int32_t threads = 0;           // 0: one per core
  std::string isa = "auto";      // see ParseIsa in cpu_options.h
  std::string weights = "auto";  // see ParseWeightsMode
  int32_t rounds = 7;
  int32_t context = 128;  // tokens of each sequence before a decode step
  std::string json_path;  // empty: not written
};

// A kind of step: `batch` sequences with `tokens` tokens each. One token: a
// decode step.
struct StepKind {
  int32_t batch = 1;
  int32_t tokens = 1;
};

// One step, and the machine's limits right before it.
struct StepRound {
  measure::Limits limits;
  double seconds = 0;  // of the whole step
  measure::StepOps ops;
};

struct StepRun {
  StepKind kind;
  int32_t context = 0;  // tokens before the step
  std::vector<StepRound> rounds;
};

struct ModelRun {
  StageInfo info;
  std::vector<StepRun> steps;  // by kind
};

// Called before each round with its number from 0 on.
using RoundProgress = std::function<void(int32_t round)>;

// Loads the whole model into this process and runs steps of every kind in
// turns; a model with few positions gets shorter ones. INVALID_ARGUMENT for
// options that no machine or this one does not take; errors of Stage::Load.
StatusOr<ModelRun> MeasureModel(const ModelBenchOptions& options,
                                const std::vector<StepKind>& kinds,
                                const RoundProgress& progress);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_MODEL_RUN_H_
