#include "common/weights/widen_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "common/weights/code_grids.h"
#include "kernels/block_format.h"

namespace sluice::weights {
namespace {

constexpr float kIq2Values[] = {8, 25, 43};
constexpr float kIq3XxsValues[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kIq1Delta = 0.125f;

template <typename T>
T LoadAs(const uint8_t* in) {
  T value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

float LoadHalf(const uint8_t* in) { return F16ToF32(LoadAs<uint16_t>(in)); }

// Eight signs of seven bits: the eighth makes their number even.
uint8_t SignsOf(uint32_t code) {
  code &= 127;
  return static_cast<uint8_t>(code | (std::popcount(code) & 1) << 7);
}

// Writes the elements of a point, times `scale`, negative where `signs` has a
// bit.
void Put8(uint16_t point, uint8_t signs, float scale, float* out) {
  for (int i = 0; i < 8; ++i) {
    const float value = scale * kIq2Values[point >> (2 * i) & 3];
    out[i] = (signs >> i & 1) != 0 ? -value : value;
  }
}

template <typename ValueOf>
void Put4(uint16_t point, int signs, float scale, const ValueOf& value_of,
          float* out) {
  for (int i = 0; i < 4; ++i) {
    const float value = scale * value_of(point >> (3 * i) & 7);
    out[i] = (signs >> i & 1) != 0 ? -value : value;
  }
}

float Iq3XxsValue(int code) { return kIq3XxsValues[code]; }
float Iq3SValue(int code) { return static_cast<float>(2 * code + 1); }

// F16, then for each 32 elements four codes of eight bits, and four times
// seven bits of signs below a scale of four bits.
void Iq2Xxs(const uint8_t* in, float* out) {
  const float d = LoadHalf(in);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* codes = in + 2 + 8 * g;
    const uint32_t signs = LoadAs<uint32_t>(codes + 4);
    const float scale = d * (0.5f + static_cast<float>(signs >> 28)) * 0.25f;
    for (int i = 0; i < 4; ++i) {
      Put8(kIq2XxsGrid[codes[i]], SignsOf(signs >> (7 * i)), scale,
           out + 32 * g + 8 * i);
    }
  }
}

// Scales of four bits for 16 elements each, from `scales` on.
float Iq2Scale(float d, const uint8_t* scales, int group) {
  const int code = scales[group / 2] >> (4 * (group % 2)) & 15;
  return d * (0.5f + static_cast<float>(code)) * 0.25f;
}

// F16, 32 codes of nine bits below seven bits of signs, 8 bytes of scales.
void Iq2Xs(const uint8_t* in, float* out) {
  const float d = LoadHalf(in);
  for (int i = 0; i < 32; ++i) {
    const auto code = LoadAs<uint16_t>(in + 2 + 2 * i);
    Put8(kIq2XsGrid[code & 511], SignsOf(code >> 9),
         Iq2Scale(d, in + 66, i / 2), out + 8 * i);
  }
}

// F16, 32 codes' low bytes, 32 bytes of signs, 8 bytes with two high bits of
// four codes each, 8 bytes of scales.
void Iq2S(const uint8_t* in, float* out) {
  const float d = LoadHalf(in);
  for (int i = 0; i < 32; ++i) {
    const int high = in[66 + i / 4] >> (2 * (i % 4)) & 3;
    Put8(kIq2SGrid[in[2 + i] | high << 8], in[34 + i],
         Iq2Scale(d, in + 74, i / 2), out + 8 * i);
  }
}

// F16, 64 codes, then for each 32 elements signs and scale as IQ2_XXS.
void Iq3Xxs(const uint8_t* in, float* out) {
  const float d = LoadHalf(in);
  for (int g = 0; g < 8; ++g) {
    const uint32_t signs = LoadAs<uint32_t>(in + 66 + 4 * g);
    const float scale = d * (0.5f + static_cast<float>(signs >> 28)) * 0.5f;
    for (int i = 0; i < 8; ++i) {
      const int eight = SignsOf(signs >> (7 * (i / 2)));
      Put4(kIq3XxsGrid[in[2 + 8 * g + i]], eight >> (4 * (i % 2)), scale,
           Iq3XxsValue, out + 32 * g + 4 * i);
    }
  }
}

// F16, 64 codes' low bytes, 8 bytes of their high bits, 32 bytes of signs, 4
// bytes of scales of four bits for 32 elements each.
void Iq3S(const uint8_t* in, float* out) {
  const float d = LoadHalf(in);
  for (int i = 0; i < 64; ++i) {
    const int high = in[66 + i / 8] >> (i % 8) & 1;
    const int scale = in[106 + i / 16] >> (4 * (i / 8 % 2)) & 15;
    Put4(kIq3SGrid[in[2 + i] | high << 8], in[74 + i / 2] >> (4 * (i % 2)),
         d * static_cast<float>(1 + 2 * scale), Iq3SValue, out + 4 * i);
  }
}

// Writes the elements of a point of -1, 0 and 1, each moved by `delta`.
void PutOneBit(uint16_t point, float scale, float delta, float* out) {
  for (int i = 0; i < 8; ++i) {
    const int value = static_cast<int>(point >> (2 * i) & 3) - 1;
    out[i] = scale * (static_cast<float>(value) + delta);
  }
}

// F16, 32 codes' low bytes, then for each 32 elements four times three high
// bits, a scale of three bits and the sign of delta.
void Iq1S(const uint8_t* in, float* out) {
  const float d = LoadHalf(in);
  for (int g = 0; g < 8; ++g) {
    const auto high = LoadAs<uint16_t>(in + 34 + 2 * g);
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    const float delta = (high & 0x8000) != 0 ? -kIq1Delta : kIq1Delta;
    for (int i = 0; i < 4; ++i) {
      const int code = in[2 + 4 * g + i] | (high >> (3 * i) & 7) << 8;
      PutOneBit(kIq1Grid[code], scale, delta, out + 32 * g + 8 * i);
    }
  }
}

// 32 codes' low bytes, 16 bytes with three high bits and the sign of delta of
// two codes each, then four words with four scales of three bits for 16
// elements each, below four bits of the F16.
void Iq1M(const uint8_t* in, float* out) {
  const uint8_t* words = in + 48;
  uint16_t half = 0;
  for (int i = 0; i < 4; ++i) {
    const auto word = LoadAs<uint16_t>(words + 2 * i);
    half = static_cast<uint16_t>(half | (word >> 12) << (4 * i));
  }
  const float d = F16ToF32(half);
  for (int i = 0; i < 32; ++i) {
    const int high = in[32 + i / 2] >> (4 * (i % 2)) & 15;
    const int group = i / 2;  // of 16 elements
    const auto word = LoadAs<uint16_t>(words + group / 4 * 2);
    const float scale =
        d * static_cast<float>(2 * (word >> (3 * (group % 4)) & 7) + 1);
    PutOneBit(kIq1Grid[in[i] | (high & 7) << 8], scale,
              (high & 8) != 0 ? -kIq1Delta : kIq1Delta, out + 8 * i);
  }
}

// The digit of a byte of base 3, the first one for 1, then for 3, 9, ...
int Digit(uint8_t byte, int power) {
  return (static_cast<uint8_t>(byte * power) * 3) >> 8;
}

// Bytes of five digits for 160 and for 80 elements, of four digits for 16, and
// F16.
void Tq1_0(const uint8_t* in, float* out) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  const float d = LoadHalf(in + 52);
  const auto put = [&](int first, int bytes, int digits) {
    for (int n = 0; n < digits; ++n) {
      for (int i = 0; i < bytes; ++i) {
        *out++ = d * static_cast<float>(Digit(in[first + i], kPowers[n]) - 1);
      }
    }
  };
  put(0, 32, 5);
  put(32, 16, 5);
  put(48, 4, 4);
}

// 64 bytes of four codes, 32 elements apart, and F16.
void Tq2_0(const uint8_t* in, float* out) {
  const float d = LoadHalf(in + 64);
  for (int i = 0; i < 256; ++i) {
    const int code = in[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
    out[i] = d * static_cast<float>(code - 1);
  }
}

// Four scales of E4M3 for 16 elements each, then their codes: element i low and
// element i + 8 high in a byte.
void Nvfp4(const uint8_t* in, float* out) {
  for (int g = 0; g < 4; ++g) {
    const uint8_t code = in[g] & 0x7f;
    const float scale = code == 0x7f ? 0.0f : E4m3ToF32(code) * 0.5f;
    for (int i = 0; i < 8; ++i) {
      const uint8_t byte = in[4 + 8 * g + i];
      out[16 * g + i] = scale * kernels::kMxfp4Values[byte & 15];
      out[16 * g + i + 8] = scale * kernels::kMxfp4Values[byte >> 4];
    }
  }
}

struct RareFormat {
  DType dtype;
  void (*widen)(const uint8_t* in, float* out);  // one block
};

constexpr RareFormat kRareFormats[] = {
    {DType::kIq1S, Iq1S},   {DType::kIq1M, Iq1M},   {DType::kIq2Xxs, Iq2Xxs},
    {DType::kIq2Xs, Iq2Xs}, {DType::kIq2S, Iq2S},   {DType::kIq3Xxs, Iq3Xxs},
    {DType::kIq3S, Iq3S},   {DType::kTq1_0, Tq1_0}, {DType::kTq2_0, Tq2_0},
    {DType::kNvfp4, Nvfp4}};

const RareFormat* FindRare(DType dtype) {
  const auto* found =
      std::find_if(std::begin(kRareFormats), std::end(kRareFormats),
                   [&](const RareFormat& f) { return f.dtype == dtype; });
  return found == std::end(kRareFormats) ? nullptr : found;
}

}  // namespace

bool IsRareBlocks(DType dtype) { return FindRare(dtype) != nullptr; }

void WidenRareBlocks(DType dtype, const uint8_t* in, int64_t blocks,
                     float* out) {
  const RareFormat* format = FindRare(dtype);
  SLUICE_CHECK(format != nullptr);
  const BlockSize size = BlockSizeOf(dtype);
  for (int64_t i = 0; i < blocks; ++i) {
    format->widen(in + i * size.bytes, out + i * size.elements);
  }
}

}  // namespace sluice::weights
