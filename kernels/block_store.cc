#include "kernels/block_store.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/check.h"
#include "kernels/block_pack.h"

namespace sluice::kernels {
namespace {

void StoreF16(float value, uint8_t* to) {
  const uint16_t half = F16Of(value);
  to[0] = static_cast<uint8_t>(half & 255u);
  to[1] = static_cast<uint8_t>(half >> 8);
}

// The eight codes of four bytes, the first one lowest, one per byte.
uint64_t SpreadCodes(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  uint64_t codes = word;
  codes = (codes | codes << 16) & 0x0000FFFF0000FFFF;
  codes = (codes | codes << 8) & 0x00FF00FF00FF00FF;
  return (codes | codes << 4) & 0x0F0F0F0F0F0F0F0F;
}

float Inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// Not a number becomes 0, as do negative ones.
uint8_t CodeOf(float value, int most) {
  if (!(value > 0.0f)) return 0;
  return static_cast<uint8_t>(std::min(value, static_cast<float>(most)));
}

void StoreQ8(const float* x, uint8_t* stored) {
  float largest = 0.0f;
  for (int k = 0; k < kShortBlock; ++k) {
    largest = std::max(largest, std::abs(x[k]));
  }
  const float scale = largest / 127.0f;
  const float inverse = Inverse(scale);
  StoreF16(scale, stored);
  for (int k = 0; k < kShortBlock; ++k) {
    const float code = std::clamp(std::round(x[k] * inverse), -128.0f, 127.0f);
    stored[2 + k] = std::isnan(code)
                        ? uint8_t{0}
                        : static_cast<uint8_t>(static_cast<int8_t>(code));
  }
}

// Codes of `bits`, four or five, in the middle of which zero stands.
void CodesAroundZero(const float* x, int bits, uint8_t* codes, float* scale) {
  float end = x[0];
  for (int k = 1; k < kShortBlock; ++k) {
    if (std::abs(x[k]) > std::abs(end)) end = x[k];
  }
  const int middle = 1 << (bits - 1);
  *scale = end / static_cast<float>(-middle);
  const float inverse = Inverse(*scale);
  for (int k = 0; k < kShortBlock; ++k) {
    codes[k] = CodeOf(x[k] * inverse + (static_cast<float>(middle) + 0.5f),
                      2 * middle - 1);
  }
}

void CodesAboveMinimum(const float* x, int bits, uint8_t* codes, float* scale,
                       float* minimum) {
  const auto [low, high] = std::minmax_element(x, x + kShortBlock);
  const int most = (1 << bits) - 1;
  *minimum = *low;
  *scale = (*high - *low) / static_cast<float>(most);
  const float inverse = Inverse(*scale);
  for (int k = 0; k < kShortBlock; ++k) {
    codes[k] = CodeOf((x[k] - *minimum) * inverse + 0.5f, most);
  }
}

void StoreOne(BlockFormat format, const float* x, uint8_t* stored) {
  if (format == BlockFormat::kQ8_0) return StoreQ8(x, stored);
  const BlockLayout& layout = LayoutOf(format);
  const int bits = layout.low_bits + layout.high_bits;
  uint8_t codes[kShortBlock];
  float scale = 0;
  float minimum = 0;
  if (layout.minimum < 0) {
    CodesAroundZero(x, bits, codes, &scale);
  } else {
    CodesAboveMinimum(x, bits, codes, &scale, &minimum);
    StoreF16(minimum, stored + layout.minimum);
  }
  StoreF16(scale, stored + layout.scale);
  uint32_t high = 0;
  for (int k = 0; k < kShortBlock; ++k) {
    high |= static_cast<uint32_t>(codes[k] >> 4) << k;
  }
  if (layout.high_bits != 0) std::memcpy(stored + layout.high, &high, 4);
  for (int k = 0; k < kShortBlock / 2; ++k) {
    stored[layout.low + k] =
        static_cast<uint8_t>((codes[k] & 15) | codes[k + kShortBlock / 2] << 4);
  }
}

}  // namespace

uint16_t F16Of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {
    // The addition leaves the value in units of 2^-24, rounded.
    const float units = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(
        sign | (std::bit_cast<uint32_t>(units) - 0x3F000000u));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(
      sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

bool CanStore(BlockFormat format) {
  return format <= BlockFormat::kQ5_1;  // the first five
}

void StoreBlocks(BlockFormat format, const float* x, int64_t blocks,
                 uint8_t* stored) {
  SLUICE_CHECK(CanStore(format));
  const int bytes = LayoutOf(format).bytes;
  for (int64_t b = 0; b < blocks; ++b, x += kShortBlock, stored += bytes) {
    StoreOne(format, x, stored);
    // The largest element and the range may leave out what is no number.
    if (std::any_of(x, x + kShortBlock,
                    [](float v) { return std::isnan(v); })) {
      StoreF16(std::numeric_limits<float>::quiet_NaN(),
               stored + LayoutOf(format).scale);
    }
  }
}

void StoreMxfp4Group(const uint8_t* codes, uint8_t scale, uint8_t* block) {
  block[0] = scale;
  for (int half = 0; half < 2; ++half) {
    const uint8_t* const from = codes + 4 * half;
    const uint64_t both = SpreadCodes(from) | SpreadCodes(from + 8) << 4;
    std::memcpy(block + 1 + 8 * half, &both, sizeof(both));
  }
}

}  // namespace sluice::kernels
