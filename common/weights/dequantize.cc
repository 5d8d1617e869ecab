#include "common/weights/dequantize.h"

#include <cstring>

#include "common/base/check.h"
#include "common/weights/widen_blocks.h"
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
void E8m0Block(const uint8_t* in, float* out) { *out = E8m0ToF32(in[0]); }

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
      if (IsRareBlocks(dtype)) {
        return WidenRareBlocks(dtype, in, blocks, out);
      }
      SLUICE_CHECK(BlocksOf(dtype).has_value());
      return kernels::WidenBlocks(*BlocksOf(dtype), in, blocks, out);
  }
}

}  // namespace sluice::weights
