#include "common/weights/dequantize.h"

#include <bit>
#include <cstring>

#include "common/base/check.h"

namespace sluice::weights {
namespace {

// Block layouts are those of ggml-common.h; nibbles of the classic formats
// are split: the low ones are the first half of the block.
constexpr int kClassic = 32;  // elements of a classic block
constexpr int kSuper = 256;   // elements of a K block
constexpr int kSub = 32;      // elements that share a Q4_K or Q5_K scale

uint16_t Load16(const uint8_t* in) {
  return static_cast<uint16_t>(in[0] | in[1] << 8);
}

uint32_t Load32(const uint8_t* in) {
  return static_cast<uint32_t>(Load16(in)) |
         static_cast<uint32_t>(Load16(in + 2)) << 16;
}

float LoadScale(const uint8_t* in) { return F16ToF32(Load16(in)); }

void F32Block(const uint8_t* in, float* out) { std::memcpy(out, in, 4); }
void F16Block(const uint8_t* in, float* out) { *out = LoadScale(in); }
void Bf16Block(const uint8_t* in, float* out) { *out = Bf16ToF32(Load16(in)); }

void Q80Block(const uint8_t* in, float* out) {
  const float scale = LoadScale(in);
  for (int i = 0; i < kClassic; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(in[2 + i])) * scale;
  }
}

void Q40Block(const uint8_t* in, float* out) {
  const float scale = LoadScale(in);
  for (int i = 0; i < kClassic / 2; ++i) {
    const int byte = in[2 + i];
    out[i] = scale * static_cast<float>((byte & 15) - 8);
    out[i + kClassic / 2] = scale * static_cast<float>((byte >> 4) - 8);
  }
}

void Q41Block(const uint8_t* in, float* out) {
  const float scale = LoadScale(in);
  const float min = LoadScale(in + 2);
  for (int i = 0; i < kClassic / 2; ++i) {
    const int byte = in[4 + i];
    out[i] = scale * static_cast<float>(byte & 15) + min;
    out[i + kClassic / 2] = scale * static_cast<float>(byte >> 4) + min;
  }
}

// The five-bit value of element `i` of a block with its nibbles at `nibbles`.
int FiveBits(const uint8_t* nibbles, uint32_t high, int i) {
  constexpr int kHalf = kClassic / 2;
  const int low = i < kHalf ? nibbles[i] & 15 : nibbles[i - kHalf] >> 4;
  return low | static_cast<int>((high >> i) & 1u) << 4;
}

void Q50Block(const uint8_t* in, float* out) {
  const float scale = LoadScale(in);
  const uint32_t high = Load32(in + 2);
  for (int i = 0; i < kClassic; ++i) {
    out[i] = scale * static_cast<float>(FiveBits(in + 6, high, i) - 16);
  }
}

void Q51Block(const uint8_t* in, float* out) {
  const float scale = LoadScale(in);
  const float min = LoadScale(in + 2);
  const uint32_t high = Load32(in + 4);
  for (int i = 0; i < kClassic; ++i) {
    out[i] = scale * static_cast<float>(FiveBits(in + 8, high, i)) + min;
  }
}

struct ScaleMin {
  int scale;
  int min;
};

// Six-bit scale and minimum of sub-block `sub` out of the 12 packed bytes:
// the first four stand whole, of the others two bits stand above those.
ScaleMin UnpackScaleMin(const uint8_t* packed, int sub) {
  if (sub < 4) return {packed[sub] & 63, packed[sub + 4] & 63};
  const int low = packed[sub + 4];
  return {(low & 15) | (packed[sub - 4] >> 6) << 4,
          (low >> 4) | (packed[sub] >> 6) << 4};
}

void Q4KBlock(const uint8_t* in, float* out) {
  const float scale = LoadScale(in);
  const float min = LoadScale(in + 2);
  const uint8_t* nibbles = in + 16;
  for (int sub = 0; sub < kSuper / kSub; ++sub) {
    const ScaleMin unpacked = UnpackScaleMin(in + 4, sub);
    const float sub_scale = scale * static_cast<float>(unpacked.scale);
    const float sub_min = min * static_cast<float>(unpacked.min);
    const uint8_t* bytes = nibbles + (sub / 2) * kSub;
    const int shift = (sub % 2) * 4;
    for (int i = 0; i < kSub; ++i) {
      const int value = (bytes[i] >> shift) & 15;
      out[sub * kSub + i] = sub_scale * static_cast<float>(value) - sub_min;
    }
  }
}

void Q5KBlock(const uint8_t* in, float* out) {
  const float scale = LoadScale(in);
  const float min = LoadScale(in + 2);
  const uint8_t* high = in + 16;
  const uint8_t* nibbles = in + 48;
  for (int sub = 0; sub < kSuper / kSub; ++sub) {
    const ScaleMin unpacked = UnpackScaleMin(in + 4, sub);
    const float sub_scale = scale * static_cast<float>(unpacked.scale);
    const float sub_min = min * static_cast<float>(unpacked.min);
    const uint8_t* bytes = nibbles + (sub / 2) * kSub;
    const int shift = (sub % 2) * 4;
    for (int i = 0; i < kSub; ++i) {
      const int value = ((bytes[i] >> shift) & 15) | ((high[i] >> sub) & 1)
                                                         << 4;
      out[sub * kSub + i] = sub_scale * static_cast<float>(value) - sub_min;
    }
  }
}

void Q6KBlock(const uint8_t* in, float* out) {
  const float scale = LoadScale(in + 208);
  const auto* scales = reinterpret_cast<const int8_t*>(in + 192);
  for (int i = 0; i < kSuper; ++i) {
    // Each half of 128 elements has 64 bytes of nibbles and 32 of high bits;
    // a quarter of 32 elements takes one nibble and one pair of bits of them.
    const int half = i / 128;
    const int quarter = (i % 128) / 32;
    const int lane = i % 32;
    const int nibble = in[half * 64 + (quarter % 2) * 32 + lane];
    const int low = (nibble >> (quarter / 2 * 4)) & 15;
    const int high = (in[128 + half * 32 + lane] >> (quarter * 2)) & 3;
    const float sub_scale = scale * static_cast<float>(scales[i / 16]);
    out[i] = sub_scale * static_cast<float>((low | high << 4) - 32);
  }
}

template <int kElements, int kBytes, void (*kBlock)(const uint8_t*, float*)>
void EachBlock(const uint8_t* in, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b) {
    kBlock(in + b * kBytes, out + b * kElements);
  }
}

}  // namespace

void DequantizeToF32(DType dtype, const uint8_t* in, int64_t blocks,
                     float* out) {
  switch (dtype) {
    case DType::kF32:
      return EachBlock<1, 4, F32Block>(in, blocks, out);
    case DType::kF16:
      return EachBlock<1, 2, F16Block>(in, blocks, out);
    case DType::kBF16:
      return EachBlock<1, 2, Bf16Block>(in, blocks, out);
    case DType::kQ8_0:
      return EachBlock<32, 34, Q80Block>(in, blocks, out);
    case DType::kQ4_0:
      return EachBlock<32, 18, Q40Block>(in, blocks, out);
    case DType::kQ4_1:
      return EachBlock<32, 20, Q41Block>(in, blocks, out);
    case DType::kQ5_0:
      return EachBlock<32, 22, Q50Block>(in, blocks, out);
    case DType::kQ5_1:
      return EachBlock<32, 24, Q51Block>(in, blocks, out);
    case DType::kQ4K:
      return EachBlock<256, 144, Q4KBlock>(in, blocks, out);
    case DType::kQ5K:
      return EachBlock<256, 176, Q5KBlock>(in, blocks, out);
    case DType::kQ6K:
      return EachBlock<256, 210, Q6KBlock>(in, blocks, out);
    default:
      SLUICE_CHECK(IsReadable(dtype));
  }
}

void DequantizeMxfp4(const uint8_t* codes, const uint8_t* scales,
                     int64_t groups, float* out) {
  static constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f,
                                           2.0f, 3.0f, 4.0f, 6.0f};
  const auto value = [](int code) {
    return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
  };
  for (int64_t g = 0; g < groups; ++g) {
    // 2^-127 is no normal number; 255 gives +inf.
    const uint32_t bits =
        scales[g] == 0 ? 0x00400000u : static_cast<uint32_t>(scales[g]) << 23;
    const float scale = std::bit_cast<float>(bits);
    for (int j = 0; j < 16; ++j) {
      const int byte = codes[16 * g + j];
      out[32 * g + 2 * j] = value(byte & 15) * scale;
      out[32 * g + 2 * j + 1] = value(byte >> 4) * scale;
    }
  }
}

}  // namespace sluice::weights
