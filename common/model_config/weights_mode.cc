#include "common/model_config/weights_mode.h"

#include "common/tensor/weight_format.h"

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

kernels::WeightType ComputedType(WeightsMode mode, weights::DType stored) {
  using kernels::WeightType;
  using weights::DType;
  if (mode == WeightsMode::kF32) return WeightType::kF32;
  if (mode == WeightsMode::kBf16 || stored == DType::kBF16) {
    return WeightType::kBf16;
  }
  if (stored == DType::kU8) return WeightType::kMxfp4;
  const auto blocks = weights::BlocksOf(stored);
  return blocks.has_value() ? TypeOfBlocks(*blocks) : WeightType::kF32;
}

}  // namespace sluice
