#ifndef SLUICE_COMMON_STAGE_LOAD_RANKS_H_
#define SLUICE_COMMON_STAGE_LOAD_RANKS_H_

#include <memory>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/device/step_inputs.h"
#include "common/model_config/model_config.h"
#include "common/stage/rank_group.h"
#include "common/stage/stage.h"
#include "common/weights/model_file.h"

namespace sluice {

struct OpenedModel {
  std::unique_ptr<weights::ModelFile> file;
  ModelConfig config;
};

// Checks the options, opens the model and checks it, and fills in the facts of
// `info` that follow from the model. Errors as Stage::Load's.
StatusOr<OpenedModel> OpenChecked(const StageOptions& options, StageInfo& info);

// The ranks of a stage that this process has, ready for steps.
struct LoadedRanks {
  std::unique_ptr<RankGroup> ranks;
  StepLimits limits;
  Duration spin{};  // StageOptions::spin, or what it is if absent
};

// Reads the weights of these ranks from the model of OpenChecked, whose `info`
// it completes, and starts their threads. Errors as Stage::Load's; if others
// have ranks, RankLink's as well.
StatusOr<LoadedRanks> LoadRanks(const StageOptions& options,
                                const OpenedModel& model, StageInfo& info);

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_LOAD_RANKS_H_
