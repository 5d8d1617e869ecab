#ifndef SLUICE_COMMON_TENSOR_WEIGHT_FORMAT_H_
#define SLUICE_COMMON_TENSOR_WEIGHT_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/views.h"

namespace sluice {

// The facts of one type of weights, which loading, sizes and the handshake
// read. A new type is a row in kWeightFormats and its kernels
// (kernels/cpu/matmul_body.inc).
struct WeightFormat {
  kernels::WeightType type;
  std::string_view name;  // as people and peers are told
  // A row is a whole number of blocks of `block_elements` in `block_bytes`.
  int32_t block_elements;
  int32_t block_bytes;
  // Per block, in memory of its own (HostWeight::scales); 0: none there.
  int32_t scale_bytes;
  // A shard of a row begins at a multiple of so many columns.
  int32_t cut_unit;
  // The arithmetic that products with such weights belong to: equal ids give
  // equal bits.
  std::string_view numerics;

  bool is_plain() const { return block_elements == 1; }
  // Of `elements`, a whole number of blocks: the blocks alone, the scales
  // alone, both.
  size_t data_bytes(int64_t elements) const {
    return static_cast<size_t>(elements / block_elements * block_bytes);
  }
  size_t scales_bytes(int64_t elements) const {
    return static_cast<size_t>(elements / block_elements * scale_bytes);
  }
  size_t bytes(int64_t elements) const {
    return data_bytes(elements) + scales_bytes(elements);
  }
};

// The CPU kernels' arithmetic with F32 activations, and the sampler's: equal
// ids give equal bits, tokens that are drawn included.
inline constexpr std::string_view kF32Canonical = "f32-canonical-3";

// By kernels::WeightType.
inline constexpr WeightFormat kWeightFormats[kernels::kNumWeightTypes] = {
    {kernels::WeightType::kF32, "f32", 1, 4, 0, 32, kF32Canonical},
    {kernels::WeightType::kBf16, "bf16", 1, 2, 0, 32, kF32Canonical},
    {kernels::WeightType::kMxfp4, "mxfp4", kernels::kMxfp4Group,
     kernels::kMxfp4Group / 2, 1, 32, kF32Canonical},
};

constexpr const WeightFormat& FormatOf(kernels::WeightType type) {
  return kWeightFormats[static_cast<int>(type)];
}

// The types of a process's weights. A value.
class WeightFormatSet {
 public:
  void Add(kernels::WeightType type) { bits_ |= 1u << static_cast<int>(type); }
  void Add(const WeightFormatSet& other) { bits_ |= other.bits_; }
  bool has(kernels::WeightType type) const {
    return (bits_ >> static_cast<int>(type) & 1u) != 0;
  }
  // "f32", "bf16", "bf16+mxfp4": all types, F32 only if no other plain type
  // is there.
  std::string names() const {
    const bool narrow = has(kernels::WeightType::kBf16);
    std::string names;
    for (const WeightFormat& format : kWeightFormats) {
      if (!has(format.type)) continue;
      if (format.type == kernels::WeightType::kF32 && narrow) continue;
      Append(format.name, names);
    }
    return names;
  }
  // The arithmetic of a device, whose id for F32 is `device`, with them: that
  // id and those of types that have another than F32.
  std::string numerics(std::string device) const {
    for (const WeightFormat& format : kWeightFormats) {
      const bool known = device.find(format.numerics) != std::string::npos;
      if (has(format.type) && format.numerics != kF32Canonical && !known) {
        Append(format.numerics, device);
      }
    }
    return device;
  }

 private:
  static void Append(std::string_view name, std::string& to) {
    if (!to.empty()) to += "+";
    to += name;
  }
  uint32_t bits_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TENSOR_WEIGHT_FORMAT_H_
