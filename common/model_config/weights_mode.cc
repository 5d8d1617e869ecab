#include "common/model_config/weights_mode.h"

namespace sluice {

const char* ToString(WeightsMode mode) {
  switch (mode) {
    case WeightsMode::kAuto:
      return "auto";
    case WeightsMode::kBf16:
      return "bf16";
    case WeightsMode::kF32:
      return "f32";
  }
  return "unknown";
}

StatusOr<WeightsMode> ParseWeightsMode(const std::string& name) {
  for (const WeightsMode mode :
       {WeightsMode::kAuto, WeightsMode::kBf16, WeightsMode::kF32}) {
    if (name == ToString(mode)) return mode;
  }
  return InvalidArgument("weights must be auto, bf16 or f32, got '", name, "'");
}

}  // namespace sluice
