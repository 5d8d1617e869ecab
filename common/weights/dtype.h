#ifndef SLUICE_COMMON_WEIGHTS_DTYPE_H_
#define SLUICE_COMMON_WEIGHTS_DTYPE_H_

#include <bit>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

#include "kernels/block_format.h"

namespace sluice::weights {

// The stored type of a tensor's elements. kQ8_0 to kIq4Xs are GGUF's block
// formats, in the order of kernels::BlockFormat.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  // As kernels::WeightType::kE4m3 and kE4m3Wide; of composed matrices alone.
  kScaledE4M3,
  kWideE4M3,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kIq4Nl,
  kMxfp4,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Xs,
  // Become F32 as they are read: no kernel multiplies them.
  kIq1S,
  kIq1M,
  kIq2Xxs,
  kIq2Xs,
  kIq2S,
  kIq3Xxs,
  kIq3S,
  kTq1_0,
  kTq2_0,
  kNvfp4,
  kF64,
  kF8E8M0,  // powers of two: scales
  // Stored types that no reader widens to F32: such tensors can be listed, but
  // a model that needs them is refused.
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF6E2M3,
  kF6E3M2,
  kF4,
  kC64,
  kQ8_1,
  kQ8K,
  kQ1_0,
  kUnknown,  // a name that this reader does not know; elements are bytes
};
inline constexpr DType kLastReadable = DType::kF8E8M0;

// Whether ModelFile reads tensors of `dtype` as F32 and BF16.
inline bool IsReadable(DType dtype) { return dtype <= kLastReadable; }

// Returns the format of a type of blocks; nothing for other types.
inline std::optional<kernels::BlockFormat> BlocksOf(DType dtype) {
  if (dtype < DType::kQ8_0 || dtype > DType::kIq4Xs) return std::nullopt;
  return static_cast<kernels::BlockFormat>(static_cast<int>(dtype) -
                                           static_cast<int>(DType::kQ8_0));
}

// A row is a whole number of blocks of `elements` in `bytes`. Plain types
// have blocks of one element.
struct BlockSize {
  int64_t elements = 1;
  int64_t bytes = 0;
};
BlockSize BlockSizeOf(DType dtype);

// "F32", "BF16", "Q4_1", "Q6_K", ...
std::string_view ToString(DType dtype);

// The type of safetensors' name; kUnknown for another name.
DType DTypeOfSafetensors(std::string_view name);
// GGUF's number of a type, and the type of a number; nothing without one.
std::optional<uint32_t> GgufIdOf(DType dtype);
std::optional<DType> DTypeOfGguf(uint32_t id);
inline std::ostream& operator<<(std::ostream& out, DType dtype) {
  return out << ToString(dtype);
}

// BF16 nearest to `value`, ties to even; a NaN stays a (quiet) NaN.
inline uint16_t F32ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float Bf16ToF32(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// F8_E4M3 without infinities, exact; 0x7f and 0xff are no numbers.
float E4m3ToF32(uint8_t code);
// F8_E8M0, exact: 2^(code - 127); 255 is no number.
float E8m0ToF32(uint8_t code);

// IEEE binary16, exact, subnormals included.
float F16ToF32(uint16_t value);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_DTYPE_H_
