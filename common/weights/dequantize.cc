#include "common/weights/dequantize.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/check.h"
#include "kernels/block_pack.h"

namespace sluice::weights {
namespace {

uint16_t Load16(const uint8_t* in) {
  return static_cast<uint16_t>(in[0] | in[1] << 8);
}

float LoadScale(const uint8_t* in) { return F16ToF32(Load16(in)); }

void F32Block(const uint8_t* in, float* out) { std::memcpy(out, in, 4); }
void F16Block(const uint8_t* in, float* out) { *out = LoadScale(in); }
void Bf16Block(const uint8_t* in, float* out) { *out = Bf16ToF32(Load16(in)); }
void F64Block(const uint8_t* in, float* out) {
  double wide = 0;
  std::memcpy(&wide, in, sizeof(wide));
  *out = static_cast<float>(wide);
}
// 2^(code - 127); 255 is no number.
void E8m0Block(const uint8_t* in, float* out) {
  *out = in[0] == 255 ? std::numeric_limits<float>::quiet_NaN()
                      : std::ldexp(1.0f, in[0] - 127);
}

template <int kBytes, void (*kBlock)(const uint8_t*, float*)>
void Each(const uint8_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) kBlock(in + i * kBytes, out + i);
}

}  // namespace

void DequantizeToF32(DType dtype, const uint8_t* in, int64_t blocks,
                     float* out) {
  switch (dtype) {
    case DType::kF32:
      return Each<4, F32Block>(in, blocks, out);
    case DType::kF16:
      return Each<2, F16Block>(in, blocks, out);
    case DType::kBF16:
      return Each<2, Bf16Block>(in, blocks, out);
    case DType::kF8E8M0:
      return Each<1, E8m0Block>(in, blocks, out);
    case DType::kF64:
      return Each<8, F64Block>(in, blocks, out);
    default:
      SLUICE_CHECK(BlocksOf(dtype).has_value());
      return kernels::WidenBlocks(*BlocksOf(dtype), in, blocks, out);
  }
}

}  // namespace sluice::weights
