// Stage::Load and Stage::Describe: from options to a stage, or to its facts.

#include <utility>

#include "common/base/clock.h"
#include "common/device/device_choice.h"
#include "common/model_config/kv_layout.h"
#include "common/placement/layer_loads.h"
#include "common/stage/kv_room.h"
#include "common/stage/load_ranks.h"
#include "common/stage/measure_room.h"
#include "common/stage/stage.h"

namespace sluice {

StatusOr<std::string> Stage::ChooseDevice(const std::string& device,
                                          int32_t place) {
  return sluice::ChooseDevice(device, place);
}

StatusOr<int32_t> Stage::RanksOn(const std::string& device, int32_t ranks) {
  return sluice::RanksOn(device, ranks);
}

StatusOr<int32_t> Stage::StepTokensOn(const std::string& device,
                                      int32_t ranks) {
  return sluice::StepTokensOn(device, ranks);
}

Status Stage::CheckNumerics(const std::string& device,
                            const std::string& numerics) {
  return sluice::CheckNumerics(device, numerics);
}

Status Stage::CheckActivations(const StageOptions& options) {
  return sluice::CheckActivations(options.activations, options.device,
                                  options.numerics);
}

StatusOr<StageInfo> Stage::Describe(const StageOptions& options) {
  StageInfo info;
  SLUICE_ASSIGN_OR_RETURN(const OpenedModel model, OpenChecked(options, info));
  const std::vector<int32_t> windows = KvWindows(model.config);
  info.threads = options.threads;
  info.isa = options.isa;
  info.limits = {options.max_step_tokens,
                 options.max_sequences,
                 MostContext(model.config),
                 kMaxKvBlocks,
                 static_cast<int32_t>(windows.size()),
                 model.config.vocab_size,
                 windows};
  info.room = MeasureRoom(options, *model.file, model.config,
                          AvailableOn(options.device));
  return info;
}

StatusOr<std::unique_ptr<Stage>> Stage::Load(const StageOptions& options) {
  const TimePoint start = Clock::now();
  auto stage = std::unique_ptr<Stage>(new Stage());
  stage->step_delay_ = options.debug_step_delay;
  StageInfo& info = stage->info_;
  SLUICE_ASSIGN_OR_RETURN(const OpenedModel model, OpenChecked(options, info));
  stage->link_ = options.rank_link;
  SLUICE_ASSIGN_OR_RETURN(LoadedRanks loaded, LoadRanks(options, model, info));
  stage->ranks_ = std::move(loaded.ranks);
  stage->spin_ = loaded.spin;
  stage->MakeFlights(loaded.limits);
  info.load_seconds = Seconds(Clock::now() - start);
  return stage;
}

}  // namespace sluice
