#ifndef SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_PAGES_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_PAGES_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/attention_partials.h"

namespace sluice::kernels::cuda {

// Keys and values of a plain type in pages of kPagePositions, read sixteen
// bytes at a time. What the kernels of heads of 64 and 128 elements share.
inline constexpr int kPagePositions = 16;
inline constexpr int kChunkPages = kAttentionChunk / kPagePositions;

template <WeightType kType>
struct KvElements;
template <>
struct KvElements<WeightType::kF32> {
  using Stored = float;
  static constexpr int kLoad = 4;  // elements of sixteen bytes
  static SLUICE_DEVICE void Widen(const Quad& bits, float (&to)[kLoad]) {
    SLUICE_UNROLL
    for (int e = 0; e < kLoad; ++e) to[e] = bits.values[e];
  }
};
template <>
struct KvElements<WeightType::kBf16> {
  using Stored = uint16_t;
  static constexpr int kLoad = 8;
  static SLUICE_DEVICE void Widen(const Quad& bits, float (&to)[kLoad]) {
    SLUICE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const auto word = BitCast<uint32_t>(bits.values[w]);
      to[2 * w] = BitCast<float>(word << 16);
      to[2 * w + 1] = BitCast<float>(word & 0xFFFF0000u);
    }
  }
};
SLUICE_DEVICE float WidenElement(float element) { return element; }
SLUICE_DEVICE float WidenElement(uint16_t bits) {
  return BitCast<float>(static_cast<uint32_t>(bits) << 16);
}

// What a token sees of the chunk that begins at position `from`: [begin, end)
// of it, or nothing.
struct SeenOfChunk {
  int begin;
  int end;
};
SLUICE_DEVICE SeenOfChunk ChunkSeenBy(const AttentionArgs& a, int64_t token,
                                      int64_t from) {
  const Visible visible = VisibleOf(a, token);
  const int64_t stop = visible.last + 1 - from;
  return {static_cast<int>(visible.first > from ? visible.first - from : 0),
          static_cast<int>(stop < kAttentionChunk ? stop : kAttentionChunk)};
}

// The least of a warp's numbers.
SLUICE_DEVICE int Least(Block& block, int value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const int other = block.ShuffleXor(value, mask);
    value = other < value ? other : value;
  }
  return value;
}

// Where the head of a place in the chunk begins, in elements. `pages`: page *
// num_kv_heads + kv head, of the chunk's pages.
template <int kDim>
SLUICE_DEVICE int64_t HeadAt(const Shared<int32_t>& pages, int j) {
  return int64_t{pages.Get(j / kPagePositions)} * (kPagePositions * kDim) +
         j % kPagePositions * kDim;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_PAGES_H_
