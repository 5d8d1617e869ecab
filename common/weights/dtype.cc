#include "common/weights/dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "kernels/weight_type.h"

namespace sluice::weights {

namespace {

constexpr int kNone = -1;

// The facts of one stored type.
struct Traits {
  DType type;
  std::string_view name;
  int16_t elements;  // of a block
  int16_t bytes;
  int16_t gguf_id;  // kNone: a GGUF has no such tensors
  bool in_safetensors;
};

constexpr Traits OfBlocks(kernels::BlockFormat format, int16_t gguf_id) {
  const auto& layout = kernels::kBlockLayouts[static_cast<int>(format)];
  const int first = static_cast<int>(DType::kQ8_0);
  return {static_cast<DType>(first + static_cast<int>(format)),
          layout.name,
          layout.elements,
          layout.bytes,
          gguf_id,
          false};
}

using kernels::BlockFormat;

// By DType.
constexpr Traits kTraits[] = {
    {DType::kF32, "F32", 1, 4, 0, true},
    {DType::kF16, "F16", 1, 2, 1, true},
    {DType::kBF16, "BF16", 1, 2, 30, true},
    {DType::kScaledE4M3, "F8_E4M3 with scales", kernels::kE4m3Run,
     kernels::kE4m3RunBytes, kNone, false},
    {DType::kWideE4M3, "F8_E4M3 with scales of 128", kernels::kE4m3WideRun,
     kernels::kE4m3WideRunBytes, kNone, false},
    OfBlocks(BlockFormat::kQ8_0, 8),
    OfBlocks(BlockFormat::kQ4_0, 2),
    OfBlocks(BlockFormat::kQ4_1, 3),
    OfBlocks(BlockFormat::kQ5_0, 6),
    OfBlocks(BlockFormat::kQ5_1, 7),
    OfBlocks(BlockFormat::kIq4Nl, 20),
    OfBlocks(BlockFormat::kMxfp4, 39),
    OfBlocks(BlockFormat::kQ2K, 10),
    OfBlocks(BlockFormat::kQ3K, 11),
    OfBlocks(BlockFormat::kQ4K, 12),
    OfBlocks(BlockFormat::kQ5K, 13),
    OfBlocks(BlockFormat::kQ6K, 14),
    OfBlocks(BlockFormat::kIq4Xs, 23),
    {DType::kIq1S, "IQ1_S", 256, 50, 19, false},
    {DType::kIq1M, "IQ1_M", 256, 56, 29, false},
    {DType::kIq2Xxs, "IQ2_XXS", 256, 66, 16, false},
    {DType::kIq2Xs, "IQ2_XS", 256, 74, 17, false},
    {DType::kIq2S, "IQ2_S", 256, 82, 22, false},
    {DType::kIq3Xxs, "IQ3_XXS", 256, 98, 18, false},
    {DType::kIq3S, "IQ3_S", 256, 110, 21, false},
    {DType::kTq1_0, "TQ1_0", 256, 54, 34, false},
    {DType::kTq2_0, "TQ2_0", 256, 66, 35, false},
    {DType::kNvfp4, "NVFP4", 64, 36, 40, false},
    {DType::kF64, "F64", 1, 8, 28, true},
    {DType::kF8E8M0, "F8_E8M0", 1, 1, kNone, true},
    {DType::kI64, "I64", 1, 8, 27, true},
    {DType::kI32, "I32", 1, 4, 26, true},
    {DType::kI16, "I16", 1, 2, 25, true},
    {DType::kI8, "I8", 1, 1, 24, true},
    {DType::kU64, "U64", 1, 8, kNone, true},
    {DType::kU32, "U32", 1, 4, kNone, true},
    {DType::kU16, "U16", 1, 2, kNone, true},
    {DType::kU8, "U8", 1, 1, kNone, true},
    {DType::kBool, "BOOL", 1, 1, kNone, true},
    {DType::kF8E4M3, "F8_E4M3", 1, 1, kNone, true},
    {DType::kF8E5M2, "F8_E5M2", 1, 1, kNone, true},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 1, 1, kNone, true},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 1, 1, kNone, true},
    {DType::kF6E2M3, "F6_E2M3", 4, 3, kNone, true},
    {DType::kF6E3M2, "F6_E3M2", 4, 3, kNone, true},
    {DType::kF4, "F4", 2, 1, kNone, true},
    {DType::kC64, "C64", 1, 8, kNone, true},
    {DType::kQ8_1, "Q8_1", 32, 40, 9, false},
    {DType::kQ8K, "Q8_K", 256, 292, 15, false},
    {DType::kQ1_0, "Q1_0", 128, 18, 41, false},
    {DType::kUnknown, "an unknown type", 1, 1, kNone, false},
};

constexpr bool IsInOrder() {
  int index = 0;
  for (const Traits& traits : kTraits) {
    if (static_cast<int>(traits.type) != index++) return false;
  }
  return index == static_cast<int>(DType::kUnknown) + 1;
}
static_assert(IsInOrder());

const Traits& TraitsOf(DType dtype) {
  SLUICE_CHECK(dtype <= DType::kUnknown);
  return kTraits[static_cast<size_t>(dtype)];
}

}  // namespace

BlockSize BlockSizeOf(DType dtype) {
  const Traits& traits = TraitsOf(dtype);
  return {traits.elements, traits.bytes};
}

std::string_view ToString(DType dtype) { return TraitsOf(dtype).name; }

DType DTypeOfSafetensors(std::string_view name) {
  for (const Traits& traits : kTraits) {
    if (traits.in_safetensors && traits.name == name) return traits.type;
  }
  return DType::kUnknown;
}

std::optional<uint32_t> GgufIdOf(DType dtype) {
  const int16_t id = TraitsOf(dtype).gguf_id;
  if (id == kNone) return std::nullopt;
  return static_cast<uint32_t>(id);
}

std::optional<DType> DTypeOfGguf(uint32_t id) {
  for (const Traits& traits : kTraits) {
    if (traits.gguf_id != kNone &&
        static_cast<uint32_t>(traits.gguf_id) == id) {
      return traits.type;
    }
  }
  return std::nullopt;
}

float E4m3ToF32(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const float magnitude =
      (code & 0x7f) == 0x7f
          ? std::numeric_limits<float>::quiet_NaN()
          : std::ldexp(
                static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa),
                std::max(exponent, 1) - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

float E8m0ToF32(uint8_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN()
                     : std::ldexp(1.0f, code - 127);
}

float F16ToF32(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000u) << 16;
  const uint32_t exponent = (value >> 10) & 31u;
  const uint32_t mantissa = value & 0x3ffu;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  }
  if (exponent == 0) {
    // Subnormal: mantissa * 2^-24, exact in F32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                              (mantissa << 13));
}

}  // namespace sluice::weights
