#include "kernels/block_pack.h"

#include <bit>
#include <cstring>

#include "common/base/check.h"

namespace sluice::kernels {
namespace {

constexpr int kVector = 4 * kGroupRows;  // bytes
constexpr int kMaxStoredBlock = 210;

struct Spot {
  int byte;
  int shift;
};

// Where the low bits of element k stand, counted from layout.low.
Spot LowSpot(BlockFormat format, int k) {
  switch (format) {
    case BlockFormat::kQ8_0:
      return {k, 0};
    case BlockFormat::kQ2K:
    case BlockFormat::kQ3K:  // halves of 128: four quarters share 32 bytes
      return {k / 128 * 32 + k % 32, k % 128 / 32 * 2};
    case BlockFormat::kQ4K:
    case BlockFormat::kQ5K:  // runs of 64: two halves share 32 bytes
      return {k / 64 * 32 + k % 32, k / 32 % 2 * 4};
    case BlockFormat::kQ6K:
      return {k / 128 * 64 + k / 32 % 2 * 32 + k % 32, k % 128 / 64 * 4};
    default:  // runs of 32: two halves share 16 bytes
      return {k / 32 * 16 + k % 16, k / 16 % 2 * 4};
  }
}

// The same of the high bits, counted from layout.high.
Spot HighSpot(BlockFormat format, int k) {
  switch (format) {
    case BlockFormat::kQ3K:
    case BlockFormat::kQ5K:
      return {k % 32, k / 32};
    case BlockFormat::kQ6K:
      return {k / 128 * 32 + k % 32, k % 128 / 32 * 2};
    default:
      return {k / 8, k % 8};
  }
}

using SpotOf = Spot (*)(BlockFormat format, int k);

// A run of codes' bits in the stored block and in the packed one.
struct Plane {
  int bits;
  int stored;
  int packed;
  int shift;  // within a code
  SpotOf spot;
};

// Calls move(offset stored, offset packed) for every byte of row r that is
// copied as it is, then plane(Plane) for the low and the high bits.
template <typename Move, typename Planes>
void ForFields(BlockFormat format, int r, const Move& move,
               const Planes& plane) {
  const BlockLayout& layout = LayoutOf(format);
  int at = 0;
  for (const int half : {layout.scale, layout.minimum}) {
    if (half < 0) continue;
    move(half, at + 2 * r);
    move(half + 1, at + 2 * r + 1);
    at += 2 * kGroupRows;
  }
  for (int i = 0; i < layout.subscale_bytes; ++i) {
    move(layout.subscales + i, at + r);
    at += kGroupRows;
  }
  if (layout.high_bits != 0) {
    plane(Plane{layout.high_bits, layout.high, at, layout.low_bits, HighSpot});
    at += layout.elements * layout.high_bits / 8 * kGroupRows;
  }
  plane(Plane{layout.low_bits, layout.low, at, 0, LowSpot});
}

// XORed into stored codes of eight bits.
uint8_t SignFlip(const Plane& plane) { return plane.bits == 8 ? 0x80 : 0; }

// Adds a stored block's bits of a plane to codes of its elements.
void ReadPlane(BlockFormat format, const uint8_t* stored, const Plane& plane,
               uint8_t* codes) {
  const int mask = (1 << plane.bits) - 1;
  const int elements = LayoutOf(format).elements;
  // Sixteen elements stand in sixteen bytes, at one shift; but for the fifth
  // bits of short blocks, which stand one behind the other.
  const bool spread = plane.spot(format, 1).byte != plane.spot(format, 0).byte;
  for (int k = 0; k < elements; k += 16) {
    const Spot first = plane.spot(format, k);
    const uint8_t* from = stored + plane.stored + first.byte;
    for (int i = 0; i < 16; ++i) {
      const int bits = spread ? from[i] >> first.shift : from[i / 8] >> i % 8;
      codes[k + i] |= static_cast<uint8_t>((bits & mask) << plane.shift);
    }
  }
}

// Four neighbours of a plane share a word of a vector.
uint32_t WordAt(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Packs row r of a group.
void PackBlock(BlockFormat format, const uint8_t* stored, int r,
               uint8_t* packed) {
  const int elements = LayoutOf(format).elements;
  ForFields(
      format, r, [&](int from, int to) { packed[to] = stored[from]; },
      [&](const Plane& plane) {
        alignas(16) uint8_t codes[kLongBlock] = {};
        Plane alone = plane;
        alone.shift = 0;
        ReadPlane(format, stored, alone, codes);
        const uint32_t flip = SignFlip(plane) * 0x01010101u;
        const int per_vector = 8 / plane.bits;
        uint8_t* to = packed + plane.packed + 4 * r;
        for (int k = 0; k < elements; k += 4 * per_vector, to += kVector) {
          uint32_t word = flip;
          for (int j = 0; j < per_vector; ++j) {
            word ^= WordAt(codes + k + 4 * j) << (plane.bits * j);
          }
          std::memcpy(to, &word, sizeof(word));
        }
      });
}

// What stands in a block beside its codes, at its place, and every code.
struct OneBlock {
  uint8_t stored[kMaxStoredBlock];
  alignas(16) uint8_t codes[kLongBlock];
};

// Row r of a packed block.
void UnpackBlock(BlockFormat format, const uint8_t* packed, int r,
                 OneBlock& to) {
  const int elements = LayoutOf(format).elements;
  std::memset(to.codes, 0, static_cast<size_t>(elements));
  ForFields(
      format, r, [&](int at, int from) { to.stored[at] = packed[from]; },
      [&](const Plane& plane) {
        const uint32_t mask = ((1u << plane.bits) - 1) * 0x01010101u;
        const int per_vector = 8 / plane.bits;
        const uint8_t* from = packed + plane.packed + 4 * r;
        for (int k = 0; k < elements; k += 4 * per_vector, from += kVector) {
          const uint32_t word = WordAt(from) ^ SignFlip(plane) * 0x01010101u;
          for (int j = 0; j < per_vector; ++j) {
            uint8_t* const four = to.codes + k + 4 * j;
            const uint32_t codes =
                WordAt(four) | (word >> (plane.bits * j) & mask) << plane.shift;
            std::memcpy(four, &codes, sizeof(codes));
          }
        }
      });
}

// Writes the codes to their places in a stored block.
void StoreCodes(BlockFormat format, const uint8_t* codes, uint8_t* stored) {
  const BlockLayout& layout = LayoutOf(format);
  const auto plane = [&](int offset, int bits, int shift, SpotOf spot) {
    std::memset(stored + offset, 0,
                static_cast<size_t>(layout.elements * bits / 8));
    for (int k = 0; k < layout.elements; ++k) {
      const Spot to = spot(format, k);
      const int code = codes[k] >> shift & ((1 << bits) - 1);
      stored[offset + to.byte] |= static_cast<uint8_t>(code << to.shift);
    }
  };
  plane(layout.low, layout.low_bits, 0, LowSpot);
  if (layout.high_bits == 0) return;
  plane(layout.high, layout.high_bits, layout.low_bits, HighSpot);
}

float F16At(const uint8_t* from) {
  const uint32_t half = from[0] | static_cast<uint32_t>(from[1]) << 8;
  const uint32_t magnitude = (half & 0x7FFFu) << 13;
  // Above 2^16, infinities and NaN keep the largest exponent.
  const float value = magnitude >= 0x0F800000u
                          ? std::bit_cast<float>(magnitude | 0x7F800000u)
                          : std::bit_cast<float>(magnitude) * 0x1p112f;
  return (half & 0x8000u) != 0 ? -value : value;
}

// 2^(code - 128), the scale of doubled values.
float HalvedPowerOfTwo(uint8_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code
                                       : (code - 1u) << 23);
}

// The signed integer that a code stands for.
int IntegerOf(BlockFormat format, int code) {
  switch (format) {
    case BlockFormat::kQ8_0:
      return static_cast<int8_t>(code);
    case BlockFormat::kQ3K:
      return code - 4;
    case BlockFormat::kQ4_0:
      return code - 8;
    case BlockFormat::kQ5_0:
      return code - 16;
    case BlockFormat::kQ6K:
      return code - 32;
    case BlockFormat::kIq4Nl:
    case BlockFormat::kIq4Xs:
      return kIq4Values[code];
    case BlockFormat::kMxfp4:
      return kMxfp4Values[code];
    default:
      return code;
  }
}

struct SubBlock {
  int scale;
  int minimum;
};

// The integer scale and minimum of element k, of formats of long blocks.
SubBlock SubBlockOf(BlockFormat format, const uint8_t* s, int k) {
  const int sub = k / 32;
  switch (format) {
    case BlockFormat::kQ2K:
      return {s[k / 16] & 15, s[k / 16] >> 4};
    case BlockFormat::kQ3K: {
      const int j = k / 16;
      const int low = s[j % 8] >> (j / 8 * 4) & 15;
      return {(low | (s[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32, 0};
    }
    case BlockFormat::kQ6K:
      return {static_cast<int8_t>(s[k / 16]), 0};
    case BlockFormat::kIq4Xs: {
      const int low = s[2 + sub / 2] >> (sub % 2 * 4) & 15;
      return {(low | (s[sub / 4] >> (sub % 4 * 2) & 3) << 4) - 32, 0};
    }
    default:
      if (sub < 4) return {s[sub] & 63, s[sub + 4] & 63};
      return {(s[sub + 4] & 15) | s[sub - 4] >> 6 << 4,
              s[sub + 4] >> 4 | s[sub] >> 6 << 4};
  }
}

// What every code of a format stands for.
struct CodeValues {
  explicit CodeValues(BlockFormat format) {
    const BlockLayout& layout = LayoutOf(format);
    const int count = 1 << (layout.low_bits + layout.high_bits);
    for (int code = 0; code < count; ++code) {
      of[code] = static_cast<float>(IntegerOf(format, code));
    }
  }
  float of[256];
};

// `stored`: of the block, its codes left aside.
void WidenBlock(BlockFormat format, const uint8_t* stored, const uint8_t* codes,
                const CodeValues& values, float* to) {
  const BlockLayout& layout = LayoutOf(format);
  const bool is_long = layout.elements == kLongBlock;
  const float scale = layout.scale >= 0
                          ? F16At(stored + layout.scale)
                          : HalvedPowerOfTwo(stored[layout.subscales]);
  const float minimum =
      layout.minimum >= 0 ? F16At(stored + layout.minimum) : 0.0f;
  for (int k = 0; k < layout.elements; k += 16) {
    SubBlock sub = {1, 1};
    if (is_long) sub = SubBlockOf(format, stored + layout.subscales, k);
    const float fine = is_long ? scale * static_cast<float>(sub.scale) : scale;
    // Long blocks take their minimum off, short ones add it.
    const float least =
        is_long ? -(minimum * static_cast<float>(sub.minimum)) : minimum;
    for (int i = k; i < k + 16; ++i) {
      to[i] = fine * values.of[codes[i]];
      if (layout.minimum >= 0) to[i] += least;
    }
  }
}

}  // namespace

void PackRows(const StoredRows& from, uint8_t* packed) {
  const BlockLayout& layout = LayoutOf(from.format);
  SLUICE_CHECK(from.cols % layout.elements == 0);
  std::memset(
      packed, 0,
      static_cast<size_t>(PackedBytes(from.format, from.rows, from.cols)));
  const int64_t blocks = from.cols / layout.elements;
  for (int64_t row = 0; row < from.rows; ++row) {
    const int64_t first = row / kGroupRows * blocks;
    for (int64_t b = 0; b < blocks; ++b) {
      PackBlock(from.format, from.data + row * from.stride + b * layout.bytes,
                static_cast<int>(row % kGroupRows),
                packed + (first + b) * layout.bytes * kGroupRows);
    }
  }
}

void UnpackRow(const BlockWeight& w, int64_t row, uint8_t* stored) {
  const BlockLayout& layout = LayoutOf(w.format);
  const int64_t blocks = w.cols / layout.elements;
  OneBlock block;
  for (int64_t b = 0; b < blocks; ++b, stored += layout.bytes) {
    const int64_t at = row / kGroupRows * blocks + b;
    UnpackBlock(w.format, w.packed + at * layout.bytes * kGroupRows,
                static_cast<int>(row % kGroupRows), block);
    StoreCodes(w.format, block.codes, block.stored);
    std::memcpy(stored, block.stored, static_cast<size_t>(layout.bytes));
  }
}

void WidenBlocks(BlockFormat format, const uint8_t* stored, int64_t blocks,
                 float* to) {
  const BlockLayout& layout = LayoutOf(format);
  const CodeValues values(format);
  for (int64_t b = 0; b < blocks; ++b, stored += layout.bytes) {
    alignas(16) uint8_t codes[kLongBlock] = {};
    ReadPlane(format, stored, {layout.low_bits, layout.low, 0, 0, LowSpot},
              codes);
    if (layout.high_bits != 0) {
      ReadPlane(format, stored,
                {layout.high_bits, layout.high, 0, layout.low_bits, HighSpot},
                codes);
    }
    WidenBlock(format, stored, codes, values, to + b * layout.elements);
  }
}

void WidenRow(const BlockWeight& w, int64_t row, float* to) {
  const BlockLayout& layout = LayoutOf(w.format);
  const CodeValues values(w.format);
  const int64_t blocks = w.cols / layout.elements;
  OneBlock block;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t at = row / kGroupRows * blocks + b;
    UnpackBlock(w.format, w.packed + at * layout.bytes * kGroupRows,
                static_cast<int>(row % kGroupRows), block);
    WidenBlock(w.format, block.stored, block.codes, values,
               to + b * layout.elements);
  }
}

void StoreMxfp4Group(const uint8_t* codes, uint8_t scale, uint8_t* block) {
  const auto code = [&](int k) { return codes[k / 2] >> (k % 2 * 4) & 15; };
  block[0] = scale;
  for (int j = 0; j < 16; ++j) {
    block[1 + j] = static_cast<uint8_t>(code(j) | code(j + 16) << 4);
  }
}

}  // namespace sluice::kernels
