#ifndef SLUICE_COMMON_TENSOR_WEIGHT_FORMAT_H_
#define SLUICE_COMMON_TENSOR_WEIGHT_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/block_format.h"
#include "kernels/weight_type.h"

namespace sluice {

// The facts of one type of weights, which loading, sizes and the handshake
// read.
struct WeightFormat {
  kernels::WeightType type;
  std::string_view name;  // as people and peers are told
  // A row is a whole number of blocks of `block_elements` in `block_bytes`.
  int32_t block_elements;
  int32_t block_bytes;
  // A shard of a row begins at a multiple of so many columns.
  int32_t cut_unit;
  // The arithmetic that products with such weights belong to: equal ids give
  // equal bits.
  std::string_view numerics;

  // Multiplied by matmul.h's kernels.
  bool is_plain() const {
    return static_cast<int>(type) < kernels::kNumPlainTypes;
  }
  // Of `elements`, a whole number of blocks.
  size_t bytes(int64_t elements) const {
    return static_cast<size_t>(elements / block_elements * block_bytes);
  }
};

// The CPU kernels' arithmetic with F32 activations, and the sampler's: equal
// ids give equal bits, tokens that are drawn included.
inline constexpr std::string_view kF32Canonical = "f32-canonical-3";
// The arithmetic with activations of eight bits (kernels/block_matmul.h).
inline constexpr std::string_view kQ8Canonical = "q8-canonical-1";

// The id of matrix units' products and attention (kernels/cuda) on GPUs of one
// architecture. It says of every type how it is computed.
inline constexpr std::string_view kCudaFast = "cuda-fast-";
inline std::string CudaFastNumerics(std::string_view architecture) {
  return std::string(kCudaFast) + std::string(architecture) + "-5";
}

// The part of a stage's id that says that its keys and values are not F32.
inline constexpr std::string_view kKvBf16 = "kv-bf16-1";
inline constexpr std::string_view kKvQ8 = "kv-q8_0-1";

// Whether a type is in runs of FP8 codes (kernels/weight_type.h).
constexpr bool IsFp8(kernels::WeightType type) {
  return type == kernels::WeightType::kE4m3 ||
         type == kernels::WeightType::kE4m3Wide;
}

// The format of blocks of a type that is not plain.
constexpr kernels::BlockFormat BlockFormatOf(kernels::WeightType type) {
  return static_cast<kernels::BlockFormat>(static_cast<int>(type) -
                                           kernels::kNumPlainTypes);
}
constexpr kernels::WeightType TypeOfBlocks(kernels::BlockFormat format) {
  return static_cast<kernels::WeightType>(static_cast<int>(format) +
                                          kernels::kNumPlainTypes);
}
static_assert(kernels::kNumPlainTypes + kernels::kNumBlockFormats ==
              kernels::kNumWeightTypes);

constexpr WeightFormat FormatOfBlocks(kernels::BlockFormat format) {
  const auto& layout = kernels::kBlockLayouts[static_cast<int>(format)];
  return {TypeOfBlocks(format), layout.name,     layout.elements,
          layout.bytes,         layout.elements, kQ8Canonical};
}

// By kernels::WeightType.
inline constexpr std::array<WeightFormat, kernels::kNumWeightTypes>
    kWeightFormats = [] {
      std::array<WeightFormat, kernels::kNumWeightTypes> formats = {
          {{kernels::WeightType::kF32, "f32", 1, 4, 32, kF32Canonical},
           {kernels::WeightType::kBf16, "bf16", 1, 2, 32, kF32Canonical},
           {kernels::WeightType::kE4m3, "fp8", kernels::kE4m3Run,
            kernels::kE4m3RunBytes, kernels::kE4m3Run, kF32Canonical},
           {kernels::WeightType::kE4m3Wide, "fp8_128", kernels::kE4m3WideRun,
            kernels::kE4m3WideRunBytes, kernels::kE4m3WideRun, kF32Canonical}}};
      for (int i = 0; i < kernels::kNumBlockFormats; ++i) {
        formats[static_cast<size_t>(kernels::kNumPlainTypes + i)] =
            FormatOfBlocks(static_cast<kernels::BlockFormat>(i));
      }
      return formats;
    }();

constexpr const WeightFormat& FormatOf(kernels::WeightType type) {
  return kWeightFormats[static_cast<size_t>(type)];
}

// The types of a model's weights. A value.
class WeightFormatSet {
 public:
  void Add(kernels::WeightType type) { bits_ |= 1u << static_cast<int>(type); }
  void Add(const WeightFormatSet& other) { bits_ |= other.bits_; }
  bool has(kernels::WeightType type) const {
    return (bits_ >> static_cast<int>(type) & 1u) != 0;
  }
  // "f32", "bf16+MXFP4", "Q4_K+Q6_K": all types.
  std::string names() const {
    std::string names;
    for (const WeightFormat& format : kWeightFormats) {
      if (has(format.type)) Append(format.name, names);
    }
    return names;
  }
  // Whether any is of fewer bits than BF16: blocks, FP8.
  bool is_quantised() const {
    constexpr uint32_t kWide =
        1u << static_cast<int>(kernels::WeightType::kF32) |
        1u << static_cast<int>(kernels::WeightType::kBf16);
    return (bits_ & ~kWide) != 0;
  }
  bool has_blocks() const { return bits_ >> kernels::kNumPlainTypes != 0; }
  // The arithmetic of a device, whose id for F32 is `device`, with them: that
  // id and those of types that have another than F32, unless it is of all, or
  // blocks are widened.
  std::string numerics(std::string device,
                       kernels::BlockActivations activations) const {
    if (device.starts_with(kCudaFast)) return device;
    if (activations == kernels::BlockActivations::kF32) return device;
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
