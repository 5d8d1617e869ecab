#ifndef SLUICE_COMMON_MODEL_CONFIG_WEIGHTS_MODE_H_
#define SLUICE_COMMON_MODEL_CONFIG_WEIGHTS_MODE_H_

#include <string>

#include "common/base/status.h"
#include "common/weights/dtype.h"
#include "kernels/weight_type.h"

namespace sluice {

// What matrices are computed with: auto keeps BF16, F32 and blocks as stored
// and takes the others to F32.
enum class WeightsMode { kAuto, kBf16, kF32 };

// "auto", "bf16" or "f32".
const char* ToString(WeightsMode mode);
// The reverse; INVALID_ARGUMENT for another name.
StatusOr<WeightsMode> ParseWeightsMode(const std::string& name);

// What rows are computed with that are stored as `stored` (U8: the codes and
// scales of MXFP4).
kernels::WeightType ComputedType(WeightsMode mode, weights::DType stored);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_WEIGHTS_MODE_H_
