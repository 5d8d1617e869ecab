#include "common/weights/dtype.h"

#include "common/base/check.h"
#include "kernels/weight_type.h"

namespace sluice::weights {

BlockSize BlockSizeOf(DType dtype) {
  if (const auto format = BlocksOf(dtype)) {
    const auto& layout = kernels::kBlockLayouts[static_cast<int>(*format)];
    return {layout.elements, layout.bytes};
  }
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return {1, 8};
    case DType::kF32:
    case DType::kI32:
      return {1, 4};
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
      return {1, 2};
    case DType::kScaledE4M3:
      return {kernels::kE4m3Run, kernels::kE4m3RunBytes};
    case DType::kWideE4M3:
      return {kernels::kE4m3WideRun, kernels::kE4m3WideRunBytes};
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return {1, 1};
    default:
      break;
  }
  SLUICE_CHECK(false);
}

std::string_view ToString(DType dtype) {
  if (const auto format = BlocksOf(dtype)) {
    return kernels::kBlockLayouts[static_cast<int>(*format)].name;
  }
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kScaledE4M3:
      return "F8_E4M3 with scales";
    case DType::kWideE4M3:
      return "F8_E4M3 with scales of 128";
    case DType::kF64:
      return "F64";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI16:
      return "I16";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kBool:
      return "BOOL";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E5M2:
      return "F8_E5M2";
    default:
      break;
  }
  SLUICE_CHECK(false);
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
