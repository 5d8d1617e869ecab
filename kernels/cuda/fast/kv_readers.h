#ifndef SLUICE_KERNELS_CUDA_FAST_KV_READERS_H_
#define SLUICE_KERNELS_CUDA_FAST_KV_READERS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/block_format.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// A position of a page of keys and values, of one kv head.
struct KvSpot {
  const KvView* kv;
  int32_t head_page;  // page * num_kv_heads + kv head
  int32_t place;      // in the page

  // The first element of the position's head, of a plain type.
  SLUICE_DEVICE int64_t Element() const {
    return head_page * (kv->block_tokens * kv->head_dim) +
           place * static_cast<int32_t>(kv->head_dim);
  }
};

// A sequence's keys and values of one kv head.
struct KvPlace {
  const KvView* kv;
  int64_t kv_head;
  const int32_t* table;

  SLUICE_DEVICE KvSpot At(int64_t position) const {
    const int64_t page = table[position / kv->block_tokens];
    return {kv, static_cast<int32_t>(page * kv->num_kv_heads + kv_head),
            static_cast<int32_t>(position % kv->block_tokens)};
  }
};

// Elements d, d + 1 and d + 2, d + 3 of a key, d a multiple of 4.
struct KeyWords {
  uint32_t lower = 0;
  uint32_t upper = 0;
};

// Every reader returns pairs of BF16 numbers: Key four elements, Value the
// elements d and d + 1 of a value, d even, KeyChunk and ValueChunk eight from d
// on, a multiple of 8, of heads of whole 32 elements. PrefetchValues has the
// values of a head's page come near.
struct Bf16KvReader {
  static constexpr bool kCopies = true;  // a chunk is what the cache holds
  using Stored = uint16_t;

  static SLUICE_DEVICE const uint16_t* KeyAt(const KvSpot& at, int64_t d) {
    return static_cast<const uint16_t*>(at.kv->keys) + at.Element() + d;
  }
  static SLUICE_DEVICE const uint16_t* ValueAt(const KvSpot& at, int64_t d) {
    return static_cast<const uint16_t*>(at.kv->values) + at.Element() + d;
  }
  static SLUICE_DEVICE void PrefetchValues(Block& block, const KvView& kv,
                                           int32_t head_page) {
    block.Prefetch(ValueAt({&kv, head_page, 0}, 0),
                   static_cast<int>(kv.block_tokens * kv.head_dim) *
                       static_cast<int>(sizeof(Stored)));
  }
  static SLUICE_DEVICE KeyWords Key(const KvSpot& at, int64_t d) {
    const uint16_t* const from = KeyAt(at, d);
    return {LoadWord(from), LoadWord(from + 2)};
  }
  static SLUICE_DEVICE uint32_t Value(const KvSpot& at, int64_t d) {
    return LoadWord(ValueAt(at, d));
  }
  static SLUICE_DEVICE TileA KeyChunk(const KvSpot& at, int64_t d) {
    // The kernel before wrote some of it, so that not LoadTile reads it.
    const Quad bits = LoadQuad(reinterpret_cast<const float*>(KeyAt(at, d)));
    return {
        {BitCast<uint32_t>(bits.values[0]), BitCast<uint32_t>(bits.values[1]),
         BitCast<uint32_t>(bits.values[2]), BitCast<uint32_t>(bits.values[3])}};
  }
};

struct F32KvReader {
  static constexpr bool kCopies = false;
  using Stored = float;

  static SLUICE_DEVICE const float* KeyAt(const KvSpot& at, int64_t d) {
    return static_cast<const float*>(at.kv->keys) + at.Element() + d;
  }
  static SLUICE_DEVICE const float* ValueAt(const KvSpot& at, int64_t d) {
    return static_cast<const float*>(at.kv->values) + at.Element() + d;
  }
  static SLUICE_DEVICE void PrefetchValues(Block& block, const KvView& kv,
                                           int32_t head_page) {
    block.Prefetch(ValueAt({&kv, head_page, 0}, 0),
                   static_cast<int>(kv.block_tokens * kv.head_dim) *
                       static_cast<int>(sizeof(Stored)));
  }
  static SLUICE_DEVICE KeyWords Key(const KvSpot& at, int64_t d) {
    const float* const from = KeyAt(at, d);
    return {PackPair(from[0], from[1]), PackPair(from[2], from[3])};
  }
  static SLUICE_DEVICE uint32_t Value(const KvSpot& at, int64_t d) {
    const float* const from = ValueAt(at, d);
    return PackPair(from[0], from[1]);
  }
  static SLUICE_DEVICE TileA ChunkOf(const float* from) {
    const Quad lower = LoadQuad(from);
    const Quad upper = LoadQuad(from + 4);
    return {{PackPair(lower.values[0], lower.values[1]),
             PackPair(lower.values[2], lower.values[3]),
             PackPair(upper.values[0], upper.values[1]),
             PackPair(upper.values[2], upper.values[3])}};
  }
  static SLUICE_DEVICE TileA KeyChunk(const KvSpot& at, int64_t d) {
    return ChunkOf(KeyAt(at, d));
  }
  static SLUICE_DEVICE TileA ValueChunk(const KvSpot& at, int64_t d) {
    return ChunkOf(ValueAt(at, d));
  }
};

// Codes times scales, rounded to F32 and then to BF16. kernels/attention.h's
// KvView says where they stand.
struct Q8KvReader {
  static constexpr bool kCopies = false;
  using Stored = uint8_t;                             // codes, and their scales
  static constexpr int kPageBytes = 34 * kGroupRows;  // of 32 elements

  static SLUICE_DEVICE const uint8_t* PageAt(const KvSpot& at,
                                             const void* base) {
    return static_cast<const uint8_t*>(base) +
           at.head_page * (at.kv->head_dim / kShortBlock * kPageBytes);
  }
  static SLUICE_DEVICE void PrefetchValues(Block& block, const KvView& kv,
                                           int32_t head_page) {
    block.Prefetch(PageAt({&kv, head_page, 0}, kv.values),
                   static_cast<int>(kv.head_dim / kShortBlock) * kPageBytes);
  }
  static SLUICE_DEVICE KeyWords Key(const KvSpot& at, int64_t d) {
    const uint8_t* const block =
        PageAt(at, at.kv->keys) + d / kShortBlock * kPageBytes;
    const float scale = HalfAt(block + 2 * at.place);
    const uint32_t codes = LoadWord(block + 2 * kGroupRows + 4 * at.place +
                                    4 * kGroupRows * (d % kShortBlock / 4));
    const auto value = [&](int i) {
      return static_cast<float>(static_cast<int32_t>(codes >> (8 * i) & 255u) -
                                128) *
             scale;
    };
    return {PackPair(value(0), value(1)), PackPair(value(2), value(3))};
  }
  static SLUICE_DEVICE float ValueScale(const KvSpot& at, int64_t d) {
    return HalfAt(
        PageAt(at, at.kv->values) + kGroupRows * at.kv->head_dim +
        2 * (at.place * (at.kv->head_dim / kShortBlock) + d / kShortBlock));
  }
  static SLUICE_DEVICE uint32_t Value(const KvSpot& at, int64_t d) {
    const float scale = ValueScale(at, d);
    const uint8_t* const codes =
        PageAt(at, at.kv->values) + at.place * at.kv->head_dim + d;
    return PackPair(static_cast<float>(static_cast<int8_t>(codes[0])) * scale,
                    static_cast<float>(static_cast<int8_t>(codes[1])) * scale);
  }
  static SLUICE_DEVICE TileA KeyChunk(const KvSpot& at, int64_t d) {
    const KeyWords lower = Key(at, d);
    const KeyWords upper = Key(at, d + 4);
    return {{lower.lower, lower.upper, upper.lower, upper.upper}};
  }
  static SLUICE_DEVICE TileA ValueChunk(const KvSpot& at, int64_t d) {
    return {
        {Value(at, d), Value(at, d + 2), Value(at, d + 4), Value(at, d + 6)}};
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_KV_READERS_H_
