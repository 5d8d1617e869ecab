#ifndef SLUICE_KERNELS_CUDA_TILE_ATTENTION_READERS_H_
#define SLUICE_KERNELS_CUDA_TILE_ATTENTION_READERS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/block_format.h"
#include "kernels/cuda/math.h"

namespace sluice::kernels::cuda {

// A sequence's keys and values of one kv head, as pairs of BF16 numbers.
struct KvPlace {
  const KvView* kv;
  int64_t kv_head;
  const int32_t* table;

  SLUICE_DEVICE int64_t PageOf(int64_t position) const {
    return table[position / kv->block_tokens] * kv->num_kv_heads + kv_head;
  }
  // The first element of a position's head, of a plain type.
  SLUICE_DEVICE int64_t ElementOf(int64_t position) const {
    return (PageOf(position) * kv->block_tokens + position % kv->block_tokens) *
           kv->head_dim;
  }
};

// Elements d, d + 1 and d + 2, d + 3 of a key, d a multiple of 4.
struct KeyWords {
  uint32_t lower = 0;
  uint32_t upper = 0;
};

struct Bf16KvReader {
  static SLUICE_DEVICE KeyWords Key(const KvPlace& at, int64_t position,
                                    int64_t d) {
    const auto* const from =
        static_cast<const uint16_t*>(at.kv->keys) + at.ElementOf(position) + d;
    return {LoadWord(from), LoadWord(from + 2)};
  }
  // Elements d and d + 1 of a value, d even.
  static SLUICE_DEVICE uint32_t Value(const KvPlace& at, int64_t position,
                                      int64_t d) {
    return LoadWord(static_cast<const uint16_t*>(at.kv->values) +
                    at.ElementOf(position) + d);
  }
};

struct F32KvReader {
  static SLUICE_DEVICE KeyWords Key(const KvPlace& at, int64_t position,
                                    int64_t d) {
    const float* const from =
        static_cast<const float*>(at.kv->keys) + at.ElementOf(position) + d;
    return {PackPair(from[0], from[1]), PackPair(from[2], from[3])};
  }
  static SLUICE_DEVICE uint32_t Value(const KvPlace& at, int64_t position,
                                      int64_t d) {
    const float* const from =
        static_cast<const float*>(at.kv->values) + at.ElementOf(position) + d;
    return PackPair(from[0], from[1]);
  }
};

// Codes times scales, rounded to F32 and then to BF16. attention.h's KvView
// says where they stand.
struct Q8KvReader {
  static constexpr int kPageBytes = 34 * kGroupRows;  // of 32 elements

  static SLUICE_DEVICE const uint8_t* PageAt(const KvPlace& at,
                                             const void* base,
                                             int64_t position) {
    return static_cast<const uint8_t*>(base) +
           at.PageOf(position) * (at.kv->head_dim / kShortBlock * kPageBytes);
  }
  static SLUICE_DEVICE KeyWords Key(const KvPlace& at, int64_t position,
                                    int64_t d) {
    const int64_t place = position % kGroupRows;
    const uint8_t* const block =
        PageAt(at, at.kv->keys, position) + d / kShortBlock * kPageBytes;
    const float scale = HalfAt(block + 2 * place);
    const uint32_t codes = LoadWord(block + 2 * kGroupRows + 4 * place +
                                    4 * kGroupRows * (d % kShortBlock / 4));
    const auto value = [&](int i) {
      return static_cast<float>(static_cast<int32_t>(codes >> (8 * i) & 255u) -
                                128) *
             scale;
    };
    return {PackPair(value(0), value(1)), PackPair(value(2), value(3))};
  }
  static SLUICE_DEVICE uint32_t Value(const KvPlace& at, int64_t position,
                                      int64_t d) {
    const uint8_t* const page = PageAt(at, at.kv->values, position);
    const int64_t place = position % kGroupRows;
    const float scale =
        HalfAt(page + kGroupRows * at.kv->head_dim +
               2 * (place * (at.kv->head_dim / kShortBlock) + d / kShortBlock));
    const uint8_t* const codes = page + place * at.kv->head_dim + d;
    return PackPair(static_cast<float>(static_cast<int8_t>(codes[0])) * scale,
                    static_cast<float>(static_cast<int8_t>(codes[1])) * scale);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_ATTENTION_READERS_H_
