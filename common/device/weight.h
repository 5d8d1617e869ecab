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

// A linear layer's weight [rows, cols] on a device. The backend chooses the
// layout of its bytes.
struct Weight {
  kernels::WeightType type = kernels::WeightType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  DeviceMemory data;
  DeviceMemory scales;
  size_t bytes() const { return data.bytes() + scales.bytes(); }
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
