#include "tests/kernels/block_reference.h"

#include <cmath>
#include <cstring>

#include "tests/kernels/kernel_tester.h"
#include "tests/testing/representative.h"

namespace sluice::kernels {
namespace {

constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                          1,    13,   25,  38,  53,  69,  89,  113};
constexpr int kFp4[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                          0, -1, -2, -3, -4, -6, -8, -12};

struct Facts {
  BlockFormat format;
  const char* name;
  int64_t elements;
  int64_t bytes;
  std::vector<int64_t> halves;  // offsets of F16 numbers
};
const std::vector<Facts>& AllFacts() {
  static const auto* const facts = new std::vector<Facts>{
      {BlockFormat::kQ8_0, "Q8_0", 32, 34, {0}},
      {BlockFormat::kQ4_0, "Q4_0", 32, 18, {0}},
      {BlockFormat::kQ4_1, "Q4_1", 32, 20, {0, 2}},
      {BlockFormat::kQ5_0, "Q5_0", 32, 22, {0}},
      {BlockFormat::kQ5_1, "Q5_1", 32, 24, {0, 2}},
      {BlockFormat::kIq4Nl, "IQ4_NL", 32, 18, {0}},
      {BlockFormat::kMxfp4, "MXFP4", 32, 17, {}},
      {BlockFormat::kQ2K, "Q2_K", 256, 84, {80, 82}},
      {BlockFormat::kQ3K, "Q3_K", 256, 110, {108}},
      {BlockFormat::kQ4K, "Q4_K", 256, 144, {0, 2}},
      {BlockFormat::kQ5K, "Q5_K", 256, 176, {0, 2}},
      {BlockFormat::kQ6K, "Q6_K", 256, 210, {208}},
      {BlockFormat::kIq4Xs, "IQ4_XS", 256, 136, {0}},
  };
  return *facts;
}
const Facts& FactsOf(BlockFormat format) {
  for (const Facts& facts : AllFacts()) {
    if (facts.format == format) return facts;
  }
  std::abort();
}

// IEEE half precision by its definition.
float Half(const uint8_t* p) {
  const int bits = p[0] | p[1] << 8;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double value = exponent == 0
                           ? std::ldexp(fraction, -24)
                           : std::ldexp(fraction + 1024, exponent - 25);
  return static_cast<float>(bits < 0x8000 ? value : -value);
}

// Both halves of `count` bytes: low nibbles first, then the high ones.
void Nibbles(const uint8_t* p, int count, int* code) {
  for (int i = 0; i < count; ++i) {
    code[i] = p[i] % 16;
    code[i + count] = p[i] / 16;
  }
}

void ReadShort(BlockFormat format, const uint8_t* p, BlockNumbers& n) {
  switch (format) {
    case BlockFormat::kQ8_0:
      n.scale = Half(p);
      for (int i = 0; i < 32; ++i) {
        n.code[i] = p[2 + i] < 128 ? p[2 + i] : p[2 + i] - 256;
      }
      return;
    case BlockFormat::kQ4_0:
      n.scale = Half(p);
      Nibbles(p + 2, 16, n.code);
      for (int& code : n.code) code -= 8;
      return;
    case BlockFormat::kQ4_1:
      n.scale = Half(p);
      n.minimum = Half(p + 2);
      Nibbles(p + 4, 16, n.code);
      return;
    case BlockFormat::kQ5_0:
    case BlockFormat::kQ5_1: {
      const bool one = format == BlockFormat::kQ5_1;
      n.scale = Half(p);
      if (one) n.minimum = Half(p + 2);
      const uint8_t* high = p + (one ? 4 : 2);
      Nibbles(high + 4, 16, n.code);
      for (int i = 0; i < 32; ++i) {
        if ((high[i / 8] & 1 << i % 8) != 0) n.code[i] += 16;
        if (!one) n.code[i] -= 16;
      }
      return;
    }
    case BlockFormat::kIq4Nl:
      n.scale = Half(p);
      Nibbles(p + 2, 16, n.code);
      for (int i = 0; i < 32; ++i) n.code[i] = kIq4[n.code[i]];
      return;
    default:
      n.scale = static_cast<float>(std::ldexp(1.0, p[0] - 128));
      Nibbles(p + 1, 16, n.code);
      for (int i = 0; i < 32; ++i) n.code[i] = kFp4[n.code[i]];
  }
}

// Q4_K's and Q5_K's twelve bytes of 6-bit scales and minima.
void ReadSixBits(const uint8_t* s, BlockNumbers& n) {
  for (int j = 0; j < 8; ++j) {
    int scale = s[j % 4] & 63;
    int minimum = s[4 + j % 4] & 63;
    if (j >= 4) {
      scale = s[8 + j % 4] % 16 + (s[j % 4] >> 6) * 16;
      minimum = s[8 + j % 4] / 16 + (s[4 + j % 4] >> 6) * 16;
    }
    n.sub_scale[2 * j] = n.sub_scale[2 * j + 1] = scale;
    n.sub_minimum[2 * j] = n.sub_minimum[2 * j + 1] = minimum;
  }
}

void ReadFourOrFive(BlockFormat format, const uint8_t* p, BlockNumbers& n) {
  const bool five = format == BlockFormat::kQ5K;
  n.scale = Half(p);
  n.minimum = -Half(p + 2);
  ReadSixBits(p + 4, n);
  const uint8_t* q = p + (five ? 48 : 16);
  for (int run = 0; run < 4; ++run) {
    Nibbles(q + 32 * run, 32, n.code + 64 * run);
  }
  for (int k = 0; five && k < 256; ++k) {
    if ((p[16 + k % 32] & 1 << k / 32) != 0) n.code[k] += 16;
  }
}

void ReadTwoOrThree(BlockFormat format, const uint8_t* p, BlockNumbers& n) {
  const bool three = format == BlockFormat::kQ3K;
  const uint8_t* q = p + (three ? 32 : 16);
  int* code = n.code;
  for (int half = 0; half < 2; ++half) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int i = 0; i < 32; ++i) *code++ = q[32 * half + i] >> shift & 3;
    }
  }
  if (!three) {
    n.scale = Half(p + 80);
    n.minimum = -Half(p + 82);
    for (int j = 0; j < 16; ++j) {
      n.sub_scale[j] = p[j] % 16;
      n.sub_minimum[j] = p[j] / 16;
    }
    return;
  }
  n.scale = Half(p + 108);
  const uint8_t* s = p + 96;
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? s[j] % 16 : s[j - 8] / 16;
    n.sub_scale[j] = low + (s[8 + j % 4] >> 2 * (j / 4) & 3) * 16 - 32;
  }
  for (int k = 0; k < 256; ++k) {
    if ((p[k % 32] & 1 << k / 32) == 0) n.code[k] -= 4;
  }
}

void ReadSix(const uint8_t* p, BlockNumbers& n) {
  n.scale = Half(p + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = p + 64 * half;
    const uint8_t* high = p + 128 + 32 * half;
    int* code = n.code + 128 * half;
    for (int i = 0; i < 32; ++i) {
      code[i] = low[i] % 16 + high[i] % 4 * 16 - 32;
      code[i + 32] = low[i + 32] % 16 + high[i] / 4 % 4 * 16 - 32;
      code[i + 64] = low[i] / 16 + high[i] / 16 % 4 * 16 - 32;
      code[i + 96] = low[i + 32] / 16 + high[i] / 64 * 16 - 32;
    }
  }
  for (int j = 0; j < 16; ++j) {
    n.sub_scale[j] = static_cast<int8_t>(p[192 + j]);
  }
}

void ReadIq4Xs(const uint8_t* p, BlockNumbers& n) {
  n.scale = Half(p);
  const int high = p[2] | p[3] << 8;
  for (int j = 0; j < 8; ++j) {
    const int low = j % 2 == 0 ? p[4 + j / 2] % 16 : p[4 + j / 2] / 16;
    n.sub_scale[2 * j] = low + (high >> 2 * j & 3) * 16 - 32;
    n.sub_scale[2 * j + 1] = n.sub_scale[2 * j];
    Nibbles(p + 8 + 16 * j, 16, n.code + 32 * j);
  }
  for (int& code : n.code) code = kIq4[code];
}

}  // namespace

std::vector<BlockFormat> AllBlockFormats() {
  std::vector<BlockFormat> formats;
  for (const Facts& facts : AllFacts()) formats.push_back(facts.format);
  return formats;
}

std::vector<BlockFormat> TestedBlockFormats() {
  if (!testing::OnlyRepresentative()) return AllBlockFormats();
  return {BlockFormat::kQ8_0, BlockFormat::kQ4_1, BlockFormat::kQ4K,
          BlockFormat::kQ6K, BlockFormat::kIq4Xs};
}

std::string NameOf(BlockFormat format) { return FactsOf(format).name; }
int64_t BlockElements(BlockFormat format) { return FactsOf(format).elements; }
int64_t BlockBytes(BlockFormat format) { return FactsOf(format).bytes; }

BlockNumbers ReadBlock(BlockFormat format, const uint8_t* block) {
  BlockNumbers n;
  n.has_minima = format == BlockFormat::kQ4_1 || format == BlockFormat::kQ5_1 ||
                 format == BlockFormat::kQ2K || format == BlockFormat::kQ4K ||
                 format == BlockFormat::kQ5K;
  switch (format) {
    case BlockFormat::kQ2K:
    case BlockFormat::kQ3K:
      ReadTwoOrThree(format, block, n);
      break;
    case BlockFormat::kQ4K:
    case BlockFormat::kQ5K:
      ReadFourOrFive(format, block, n);
      break;
    case BlockFormat::kQ6K:
      ReadSix(block, n);
      break;
    case BlockFormat::kIq4Xs:
      ReadIq4Xs(block, n);
      break;
    default:
      ReadShort(format, block, n);
  }
  return n;
}

std::vector<uint8_t> RandomBlockRows(BlockFormat format, uint64_t seed,
                                     int64_t rows, int64_t cols) {
  const Facts& facts = FactsOf(format);
  const int64_t blocks = cols / facts.elements;
  const auto draws = RandomFloats(seed, rows * blocks * facts.bytes, 128.0f);
  std::vector<uint8_t> bytes;
  for (const float draw : draws) {
    bytes.push_back(static_cast<uint8_t>(std::floor(draw) + 128));
  }
  for (int64_t b = 0; b < rows * blocks; ++b) {
    uint8_t* block = bytes.data() + b * facts.bytes;
    const uint8_t drawn = block[1];
    if (b % blocks >= blocks - 2 && blocks > 2) {
      std::memset(block, b % blocks == blocks - 1 ? 0 : 255,
                  static_cast<size_t>(facts.bytes));
    }
    for (const int64_t at : facts.halves) {
      // 2^-9 to 2^-7 of either sign; some are the smallest numbers, some 0.
      block[at] = static_cast<uint8_t>(drawn * 7 + at);
      block[at + 1] =
          static_cast<uint8_t>((drawn & 0x80) | 0x18 | (drawn & 0x1F) % 29);
      if (drawn % 61 == 7) block[at + 1] &= 0x80;
      if (drawn % 61 == 8) block[at] = block[at + 1] = 0;
    }
    if (format == BlockFormat::kMxfp4) {
      block[0] = static_cast<uint8_t>(119 + drawn % 8);
    }
  }
  return bytes;
}

ReferenceActivations QuantizeReference(const std::vector<float>& x,
                                       int64_t block) {
  ReferenceActivations out;
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(block)) {
    float amax = 0;
    bool finite = true;
    for (size_t k = at; k < at + static_cast<size_t>(block); ++k) {
      finite = finite && std::isfinite(x[k]);
      amax = std::fmax(amax, std::fabs(x[k]));
    }
    out.finite = out.finite && finite;
    const bool zero = !finite || amax < std::ldexp(1.0f, -100);
    const float r = zero ? 0.0f : 127.0f / amax;
    out.scales.push_back(zero ? 0.0f : amax / 127.0f);
    for (size_t k = at; k < at + static_cast<size_t>(block); ++k) {
      const float scaled = zero ? 0.0f : x[k] * r;
      out.codes.push_back(static_cast<int>(std::nearbyintf(scaled)));
    }
  }
  return out;
}

float CanonicalBlockDot(BlockFormat format, const uint8_t* row,
                        const ReferenceActivations& x, int64_t begin,
                        int64_t end) {
  const Facts& facts = FactsOf(format);
  float acc = 0;
  for (int64_t b = begin; b < end; ++b) {
    const BlockNumbers n = ReadBlock(format, row + b * facts.bytes);
    int64_t i = 0;
    int64_t j = 0;
    for (int64_t k = 0; k < facts.elements; ++k) {
      const int64_t a = x.codes[static_cast<size_t>(b * facts.elements + k)];
      i += a * n.sub_scale[k / 16] * n.code[k];
      j += a * n.sub_minimum[k / 16];
    }
    const float d = x.scales[static_cast<size_t>(b)];
    const float s = n.scale * d;
    acc = std::fma(static_cast<float>(i), s, acc);
    if (n.has_minima) {
      const float m = n.minimum * d;
      acc = std::fma(static_cast<float>(j), m, acc);
    }
  }
  return acc;
}

std::vector<double> BlockValues(BlockFormat format, const uint8_t* row,
                                int64_t cols) {
  const Facts& facts = FactsOf(format);
  std::vector<double> values;
  for (int64_t b = 0; b < cols / facts.elements; ++b) {
    const BlockNumbers n = ReadBlock(format, row + b * facts.bytes);
    for (int64_t k = 0; k < facts.elements; ++k) {
      const double code = double{n.scale} * n.sub_scale[k / 16] * n.code[k];
      values.push_back(n.has_minima
                           ? code + double{n.minimum} * n.sub_minimum[k / 16]
                           : code);
    }
  }
  return values;
}

}  // namespace sluice::kernels
