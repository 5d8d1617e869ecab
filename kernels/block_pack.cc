#include "kernels/block_pack.h"

#include <bit>
#include <cstring>
#include <vector>

#include "common/base/check.h"

namespace sluice::kernels {
namespace {

constexpr int kVector = 4 * kGroupRows;  // bytes
constexpr int kMaxStoredBlock = 210;
constexpr int kMaxFours = kLongBlock / 4;

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

// The codes' low or high bits. Four consecutive elements, the first one a
// multiple of four, are a word of four codes on their way from one layout to
// the other. In stored blocks they are at the same bits of four bytes that
// follow each other; `dense` ones are four bits of one byte.
struct Plane {
  int bits;
  int shift;   // within a code
  int packed;  // offset in the packed block
  bool dense;
  Spot stored[kMaxFours];  // of every four's first element, in the block

  // The word of four bits that follow each other, and the inverse.
  static uint32_t Spread(uint32_t bits) {
    return bits * 0x00204081u & 0x01010101u;
  }
  static uint32_t Gathered(uint32_t word) {
    return (word | word >> 7 | word >> 14 | word >> 21) & 15;
  }
  uint32_t mask() const { return ((1u << bits) - 1) * 0x01010101u; }
  // XORed into stored codes of eight bits.
  uint32_t flip() const { return bits == 8 ? 0x80808080u : 0; }
  int per_vector() const { return 8 / bits; }
};

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

// Where a stored block and a packed one have what.
struct Fields {
  explicit Fields(BlockFormat format) : layout(LayoutOf(format)) {
    packed_codes = layout.subscale_bytes * kGroupRows;
    for (const int half : {layout.scale, layout.minimum}) {
      if (half >= 0) halves[num_halves++] = half;
    }
    packed_codes += num_halves * 2 * kGroupRows;
    int at = packed_codes;
    if (layout.high_bits != 0) {
      Plane& high = AddPlane(format, layout.high_bits, layout.high, HighSpot);
      high.packed = at;
      high.shift = layout.low_bits;
      at += layout.elements * layout.high_bits / 8 * kGroupRows;
    }
    AddPlane(format, layout.low_bits, layout.low, LowSpot).packed = at;
    for (int code = 0; code < 1 << (layout.low_bits + layout.high_bits);
         ++code) {
      values[code] = static_cast<float>(IntegerOf(format, code));
    }
  }

  Plane& AddPlane(BlockFormat format, int bits, int stored,
                  Spot (*spot)(BlockFormat format, int k)) {
    Plane& plane = planes[num_planes++];
    plane.bits = bits;
    plane.dense = spot(format, 0).byte == spot(format, 1).byte;
    for (int four = 0; four < layout.elements / 4; ++four) {
      plane.stored[four] = spot(format, 4 * four);
      plane.stored[four].byte += stored;
    }
    return plane;
  }
  int subscales() const { return num_halves * 2 * kGroupRows; }

  BlockLayout layout;
  int halves[2] = {};  // offsets of F16 numbers in the stored block
  int num_halves = 0;
  int packed_codes = 0;
  Plane planes[2] = {};
  int num_planes = 0;
  float values[256] = {};  // of every code
};

const Fields& FieldsOf(BlockFormat format) {
  static const auto* const fields = [] {
    auto* all = new std::vector<Fields>();
    for (int i = 0; i < kNumBlockFormats; ++i) {
      all->emplace_back(static_cast<BlockFormat>(i));
    }
    return all;
  }();
  return (*fields)[static_cast<size_t>(format)];
}

uint32_t WordAt(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// The same block of `count` rows of a group, `stride` bytes apart.
struct BlockOfRows {
  const uint8_t* data;
  int64_t stride;
  int count;
};

// ORs the four at `spot` of every row into the words, shifted left.
void AddFours(const Plane& plane, const BlockOfRows& rows, Spot spot, int left,
              uint32_t* words) {
  const uint8_t* from = rows.data + spot.byte;
  if (plane.dense) {
    for (int r = 0; r < rows.count; ++r, from += rows.stride) {
      words[r] |= Plane::Spread(*from >> spot.shift & 15) << left;
    }
    return;
  }
  const uint32_t mask = plane.mask();
  const uint32_t flip = plane.flip();
  for (int r = 0; r < rows.count; ++r, from += rows.stride) {
    words[r] |= ((WordAt(from) >> spot.shift ^ flip) & mask) << left;
  }
}

void PackPlane(const Plane& plane, const BlockOfRows& rows, int elements,
               uint8_t* packed) {
  const int per_vector = plane.per_vector();
  packed += plane.packed;
  for (int four = 0; four < elements / 4; four += per_vector) {
    uint32_t words[kGroupRows] = {};
    for (int j = 0; j < per_vector; ++j) {
      AddFours(plane, rows, plane.stored[four + j], j * plane.bits, words);
    }
    std::memcpy(packed, words, sizeof(words));
    packed += kVector;
  }
}

// Packs a block of a group; rows behind the last one become zeros.
void PackBlock(const Fields& fields, const BlockOfRows& rows, uint8_t* packed) {
  if (rows.count < kGroupRows) {
    std::memset(packed, 0, static_cast<size_t>(fields.packed_codes));
  }
  for (int i = 0; i < fields.num_halves; ++i) {
    const uint8_t* from = rows.data + fields.halves[i];
    for (int r = 0; r < rows.count; ++r, from += rows.stride) {
      std::memcpy(packed + 2 * (i * kGroupRows + r), from, 2);
    }
  }
  for (int i = 0; i < fields.layout.subscale_bytes; ++i) {
    const uint8_t* from = rows.data + fields.layout.subscales + i;
    uint8_t* to = packed + fields.subscales() + i * kGroupRows;
    for (int r = 0; r < rows.count; ++r, from += rows.stride) to[r] = *from;
  }
  for (int i = 0; i < fields.num_planes; ++i) {
    PackPlane(fields.planes[i], rows, fields.layout.elements, packed);
  }
}

void UnpackPlane(const Plane& plane, const uint8_t* packed, int r, int elements,
                 uint8_t* stored) {
  for (int four = 0; four < elements / 4; ++four) {
    const int vector = four / plane.per_vector();
    const uint32_t word =
        WordAt(packed + plane.packed + vector * kVector + 4 * r) >>
            (four % plane.per_vector() * plane.bits) &
        plane.mask();
    const Spot spot = plane.stored[four];
    uint8_t* to = stored + spot.byte;
    if (plane.dense) {
      *to |= static_cast<uint8_t>(Plane::Gathered(word) << spot.shift);
    } else {
      const uint32_t bits = WordAt(to) | (word ^ plane.flip()) << spot.shift;
      std::memcpy(to, &bits, sizeof(bits));
    }
  }
}

void UnpackBlock(const Fields& fields, const uint8_t* packed, int r,
                 uint8_t* stored) {
  std::memset(stored, 0, static_cast<size_t>(fields.layout.bytes));
  for (int i = 0; i < fields.num_halves; ++i) {
    std::memcpy(stored + fields.halves[i], packed + 2 * (i * kGroupRows + r),
                2);
  }
  for (int i = 0; i < fields.layout.subscale_bytes; ++i) {
    stored[fields.layout.subscales + i] =
        packed[fields.subscales() + i * kGroupRows + r];
  }
  for (int i = 0; i < fields.num_planes; ++i) {
    UnpackPlane(fields.planes[i], packed, r, fields.layout.elements, stored);
  }
}

// 2^(code - 128), the scale of doubled values.
float HalvedPowerOfTwo(uint8_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code
                                       : (code - 1u) << 23);
}

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

void WriteCodes(const Plane& plane, const uint8_t* codes, int elements,
                uint8_t* stored) {
  const uint32_t mask = plane.mask();
  for (int four = 0; four < elements / 4; ++four) {
    const Spot spot = plane.stored[four];
    const uint32_t word = WordAt(codes + 4 * four) >> plane.shift & mask;
    uint8_t* to = stored + spot.byte;
    if (plane.dense) {
      *to |= static_cast<uint8_t>(Plane::Gathered(word) << spot.shift);
    } else {
      const uint32_t bits = WordAt(to) | word << spot.shift;
      std::memcpy(to, &bits, sizeof(bits));
    }
  }
}

void ReadCodes(const Plane& plane, const uint8_t* stored, int elements,
               uint8_t* codes) {
  const uint32_t mask = plane.mask();
  for (int four = 0; four < elements / 4; ++four) {
    const Spot spot = plane.stored[four];
    const uint8_t* from = stored + spot.byte;
    const uint32_t bits = plane.dense ? Plane::Spread(*from >> spot.shift & 15)
                                      : WordAt(from) >> spot.shift & mask;
    const uint32_t word = WordAt(codes + 4 * four) | bits << plane.shift;
    std::memcpy(codes + 4 * four, &word, sizeof(word));
  }
}

void WidenBlock(BlockFormat format, const Fields& fields, const uint8_t* stored,
                float* to) {
  const BlockLayout& layout = fields.layout;
  const bool is_long = layout.elements == kLongBlock;
  uint8_t codes[kLongBlock];
  std::memset(codes, 0, static_cast<size_t>(layout.elements));
  for (int i = 0; i < fields.num_planes; ++i) {
    ReadCodes(fields.planes[i], stored, layout.elements, codes);
  }
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
      to[i] = fine * fields.values[codes[i]];
      if (layout.minimum >= 0) to[i] += least;
    }
  }
}

}  // namespace

float F16At(const uint8_t* from) {
  const uint32_t half = from[0] | static_cast<uint32_t>(from[1]) << 8;
  const uint32_t magnitude = (half & 0x7FFFu) << 13;
  // Above 2^16, infinities and NaN keep the largest exponent.
  const float value = magnitude >= 0x0F800000u
                          ? std::bit_cast<float>(magnitude | 0x7F800000u)
                          : std::bit_cast<float>(magnitude) * 0x1p112f;
  return (half & 0x8000u) != 0 ? -value : value;
}

void StoreCodes(BlockFormat format, const uint8_t* codes, uint8_t* stored) {
  const Fields& fields = FieldsOf(format);
  for (int i = 0; i < fields.num_planes; ++i) {
    WriteCodes(fields.planes[i], codes, fields.layout.elements, stored);
  }
}

void StoreSubBlock(BlockFormat format, int k, SubBlock sub, uint8_t* s) {
  const auto put = [s](int byte, int bits) {
    s[byte] = static_cast<uint8_t>(s[byte] | bits);
  };
  const int j = k / 32;
  switch (format) {
    case BlockFormat::kQ2K:
      return put(k / 16, sub.scale | sub.minimum << 4);
    case BlockFormat::kQ3K: {
      const int i = k / 16;
      put(i % 8, ((sub.scale + 32) & 15) << (i / 8 * 4));
      return put(8 + i % 4, (sub.scale + 32) >> 4 << (i / 4 * 2));
    }
    case BlockFormat::kQ6K:
      return put(k / 16, sub.scale & 255);
    case BlockFormat::kIq4Xs:
      put(2 + j / 2, ((sub.scale + 32) & 15) << (j % 2 * 4));
      return put(j / 4, (sub.scale + 32) >> 4 << (j % 4 * 2));
    default:
      if (j < 4) {
        put(j, sub.scale);
        return put(j + 4, sub.minimum);
      }
      put(j + 4, (sub.scale & 15) | (sub.minimum & 15) << 4);
      put(j - 4, sub.scale >> 4 << 6);
      return put(j, sub.minimum >> 4 << 6);
  }
}

void PackRows(const StoredRows& from, uint8_t* packed) {
  const Fields& fields = FieldsOf(from.format);
  const BlockLayout& layout = fields.layout;
  SLUICE_CHECK(from.cols % layout.elements == 0);
  const int64_t blocks = from.cols / layout.elements;
  for (int64_t row = 0; row < from.rows; row += kGroupRows) {
    const int64_t rest = from.rows - row;
    BlockOfRows rows = {
        .data = from.data + row * from.stride,
        .stride = from.stride,
        .count = static_cast<int>(rest < kGroupRows ? rest : kGroupRows)};
    for (int64_t b = 0; b < blocks; ++b) {
      PackBlock(fields, rows, packed);
      rows.data += layout.bytes;
      packed += layout.bytes * kGroupRows;
    }
  }
}

void UnpackRow(const BlockWeight& w, int64_t row, uint8_t* stored) {
  const Fields& fields = FieldsOf(w.format);
  const BlockLayout& layout = fields.layout;
  const int64_t blocks = w.cols / layout.elements;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t at = row / kGroupRows * blocks + b;
    UnpackBlock(fields, w.packed + at * layout.bytes * kGroupRows,
                static_cast<int>(row % kGroupRows), stored + b * layout.bytes);
  }
}

void WidenBlocks(BlockFormat format, const uint8_t* stored, int64_t blocks,
                 float* to) {
  const Fields& fields = FieldsOf(format);
  const BlockLayout& layout = fields.layout;
  for (int64_t b = 0; b < blocks; ++b) {
    WidenBlock(format, fields, stored + b * layout.bytes,
               to + b * layout.elements);
  }
}

void WidenRow(const BlockWeight& w, int64_t row, float* to) {
  const Fields& fields = FieldsOf(w.format);
  const BlockLayout& layout = fields.layout;
  const int64_t blocks = w.cols / layout.elements;
  uint8_t stored[kMaxStoredBlock];
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t at = row / kGroupRows * blocks + b;
    UnpackBlock(fields, w.packed + at * layout.bytes * kGroupRows,
                static_cast<int>(row % kGroupRows), stored);
    WidenBlock(w.format, fields, stored, to + b * layout.elements);
  }
}

}  // namespace sluice::kernels
