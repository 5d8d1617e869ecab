#include "common/model_config/weights_mode.h"

#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/tensor/weight_format.h"

namespace sluice {

namespace {

constexpr std::pair<WeightsMode, const char*> kModes[] = {
    {WeightsMode::kAuto, "auto"}, {WeightsMode::kBf16, "bf16"},
    {WeightsMode::kF32, "f32"},   {WeightsMode::kQ8_0, "q8_0"},
    {WeightsMode::kQ4_0, "q4_0"}, {WeightsMode::kQ4_1, "q4_1"},
    {WeightsMode::kQ5_0, "q5_0"}, {WeightsMode::kQ5_1, "q5_1"}};

constexpr std::pair<KvChoice, const char*> kKvChoices[] = {
    {std::nullopt, "auto"},
    {kernels::WeightType::kF32, "f32"},
    {kernels::WeightType::kBf16, "bf16"},
    {kernels::WeightType::kQ8_0, "q8_0"}};

}  // namespace

const char* ToString(WeightsMode mode) {
  return kModes[static_cast<size_t>(mode)].second;
}

StatusOr<WeightsMode> ParseWeightsMode(const std::string& name) {
  std::string known;
  for (const auto& [mode, mode_name] : kModes) {
    if (name == mode_name) return mode;
    known += Cat(known.empty() ? "" : ", ", mode_name);
  }
  return InvalidArgument("weights must be one of ", known, ", got '", name,
                         "'");
}

const char* ToString(KvChoice choice) {
  for (const auto& [known, name] : kKvChoices) {
    if (choice == known) return name;
  }
  SLUICE_CHECK(false);  // keys and values are kept in no other
}

StatusOr<KvChoice> ParseKvChoice(const std::string& name) {
  std::string known;
  for (const auto& [choice, choice_name] : kKvChoices) {
    if (name == choice_name) return choice;
    known += Cat(known.empty() ? "" : ", ", choice_name);
  }
  return InvalidArgument("kv type must be one of ", known, ", got '", name,
                         "'");
}

StatusOr<kernels::BlockActivations> ParseActivations(const std::string& name) {
  using kernels::BlockActivations;
  if (name == "stored") return BlockActivations::kEightBits;
  if (name == "f32") return BlockActivations::kF32;
  return InvalidArgument("activations must be stored or f32, got '", name, "'");
}

kernels::WeightType ComputedType(WeightsMode mode, weights::DType stored) {
  using kernels::WeightType;
  using weights::DType;
  if (mode == WeightsMode::kF32) return WeightType::kF32;
  if (mode == WeightsMode::kBf16) return WeightType::kBf16;
  if (const auto blocks = weights::BlocksOf(stored)) {
    return TypeOfBlocks(*blocks);
  }
  switch (mode) {
    case WeightsMode::kQ8_0:
      return WeightType::kQ8_0;
    case WeightsMode::kQ4_0:
      return WeightType::kQ4_0;
    case WeightsMode::kQ4_1:
      return WeightType::kQ4_1;
    case WeightsMode::kQ5_0:
      return WeightType::kQ5_0;
    case WeightsMode::kQ5_1:
      return WeightType::kQ5_1;
    default:
      break;
  }
  switch (stored) {
    case DType::kBF16:
      return WeightType::kBf16;
    case DType::kScaledE4M3:
      return WeightType::kE4m3;
    case DType::kWideE4M3:
      return WeightType::kE4m3Wide;
    default:
      return WeightType::kF32;
  }
}

}  // namespace sluice
