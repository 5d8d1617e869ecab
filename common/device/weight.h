#ifndef SLUICE_COMMON_DEVICE_WEIGHT_H_
#define SLUICE_COMMON_DEVICE_WEIGHT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/device/memory.h"
#include "common/tensor/host_weight.h"
#include "kernels/weight_type.h"

namespace sluice {

// Rows of one type of a weight on a device. The backend chooses the layout of
// the bytes.
struct WeightPart {
  kernels::WeightType type = kernels::WeightType::kF32;
  int64_t rows = 0;
  DeviceMemory data;
};

// A linear layer's weight [rows, cols] on a device: parts one below the other,
// a single part if all rows have the same type. Experts and weights of
// RowParallel have one part, weights of HeadLinear a part for each head.
struct Weight {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<WeightPart> parts;
  // Keeps the parts' bytes if the backend does not own them, and what marks
  // their file as used.
  std::shared_ptr<const void> memory;
  // Returns the bytes of the elements; a layout may fill up groups of rows.
  size_t bytes() const {
    size_t total = 0;
    for (const WeightPart& part : parts) {
      total += FormatOf(part.type).bytes(part.rows * cols);
    }
    return total;
  }
};

// Some of one layer's experts, on the device.
struct ExpertWeights {
  int32_t first = 0;                             // id of gate_up[0]
  std::vector<std::unique_ptr<Weight>> gate_up;  // [2F, H]: gate rows, up rows
  std::vector<std::unique_ptr<Weight>> down;     // [H, F]
  DeviceMemory gate_up_bias;                     // F32 [n, 2F] or none
  DeviceMemory down_bias;                        // F32 [n, H] or none
  int32_t size() const { return static_cast<int32_t>(gate_up.size()); }
  size_t bytes() const {
    size_t total = 0;
    for (const auto& weight : gate_up) total += weight->bytes();
    for (const auto& weight : down) total += weight->bytes();
    return total;
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_WEIGHT_H_
