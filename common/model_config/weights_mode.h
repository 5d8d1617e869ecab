#ifndef SLUICE_COMMON_MODEL_CONFIG_WEIGHTS_MODE_H_
#define SLUICE_COMMON_MODEL_CONFIG_WEIGHTS_MODE_H_

#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/weights/dtype.h"
#include "kernels/block_format.h"
#include "kernels/weight_type.h"

namespace sluice {

// What matrices are computed with: auto keeps BF16, F32 and blocks as stored
// and takes the others to F32. q8_0 to q5_1 make such blocks of what is stored
// as no blocks, but for embedding and head, which become Q8_0.
enum class WeightsMode {
  kAuto,
  kBf16,
  kF32,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1
};

// The name of --weights: "auto", "bf16", "f32", "q8_0", ...
const char* ToString(WeightsMode mode);
// The reverse; INVALID_ARGUMENT for another name.
StatusOr<WeightsMode> ParseWeightsMode(const std::string& name);

// What keys and values are to be kept in: F32, BF16 or Q8_0; absent: auto,
// which the model's weights decide (KvTypeOf of tensor_table.h).
using KvChoice = std::optional<kernels::WeightType>;

// The name of --kv-type: "auto", "f32", "bf16" or "q8_0".
const char* ToString(KvChoice choice);
// The reverse; INVALID_ARGUMENT for another name.
StatusOr<KvChoice> ParseKvChoice(const std::string& name);

// What weights of blocks are multiplied with: the name of --activations,
// "stored" (activations of eight bits) or "f32"; INVALID_ARGUMENT for another
// one.
StatusOr<kernels::BlockActivations> ParseActivations(const std::string& name);

// What rows are computed with that are stored as `stored`. A row that is no
// whole number of a mode's blocks takes ComputedType of auto.
kernels::WeightType ComputedType(WeightsMode mode, weights::DType stored);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_WEIGHTS_MODE_H_
