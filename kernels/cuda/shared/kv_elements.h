#ifndef SLUICE_KERNELS_CUDA_SHARED_KV_ELEMENTS_H_
#define SLUICE_KERNELS_CUDA_SHARED_KV_ELEMENTS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/block_format.h"
#include "kernels/cuda/runtime/matrix_fragments.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// What stores keys and values: pairs that rotate, and elements as the cache
// holds them.

// a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin).
SLUICE_DEVICE void TurnPair(float cos, float sin, float& a, float& b) {
  const float turned = Fma(a, cos, -(b * sin));
  b = Fma(b, cos, a * sin);
  a = turned;
}

SLUICE_DEVICE void StoreElement(float x, float* to) { *to = x; }
// Rounded to nearest even; a NaN stays one.
SLUICE_DEVICE void StoreElement(float x, uint16_t* to) {
  const auto bits = BitCast<uint32_t>(x);
  *to = static_cast<uint16_t>(
      x != x ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

SLUICE_DEVICE void StoreFour(const Quad& x, float* to) { StoreQuad(to, x); }
SLUICE_DEVICE void StoreFour(const Quad& x, uint16_t* to) {
  uint16_t halves[4];
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i) StoreElement(x.values[i], &halves[i]);
  StoreHalfTile(to, {{halves[0] | uint32_t{halves[1]} << 16,
                      halves[2] | uint32_t{halves[3]} << 16}});
}

// Stores a position's key and value of one head in Q8_0, by blocks of kWarps
// warps; attention.h has the layout.
template <int kWarps>
struct Q8HeadStore {
  static constexpr int kThreads = kWarps * kWarpLanes;
  struct Memory {
    Shared<float> scales;    // of keys' blocks, then of values'
    Shared<int32_t> finite;  // [warp][key, value]
  };
  struct Place {
    uint8_t* keys;  // of the page's head
    uint8_t* values;
    int64_t place;  // in the page
    int64_t head_dim;
  };
  static constexpr size_t SharedBytes(int64_t head_dim) {
    const auto blocks = static_cast<size_t>(head_dim / kShortBlock);
    return (2 * blocks * sizeof(float) + 15) / 16 * 16 + 2 * kWarps * 4;
  }
  static SLUICE_DEVICE Memory MemoryOf(Block& block, int64_t head_dim) {
    return {block.Allocate<float>(2 * (head_dim / kShortBlock)),
            block.Allocate<int32_t>(2 * kWarps)};
  }
  // Element d of the key, or of the value, is element_of(is_key, d). All
  // threads call.
  template <typename ElementOf>
  static SLUICE_DEVICE void Run(Block& block, const Memory& memory,
                                const Place& at, const ElementOf& element_of) {
    const int64_t blocks = at.head_dim / kShortBlock;
    bool whole_key = true;
    bool whole_value = true;
    for (int64_t n = block.warp(); n < 2 * blocks; n += kWarps) {
      const int64_t b = n % blocks;
      const bool is_key = n < blocks;
      const int64_t d = b * kShortBlock + block.lane();
      const float own = element_of(is_key, d);
      const EightBits bits = EightBitsOf(LargestOf(block, MagnitudeOf(own)));
      const auto code = static_cast<uint8_t>(bits.Code(own) & 255);
      if (is_key) {
        whole_key = whole_key && bits.finite;
        // Four elements of a row are together; codes have 128 added.
        const int64_t four = block.lane() / 4 * kGroupRows + at.place;
        at.keys[b * kGroupRows * 34 + 2 * kGroupRows + 4 * four +
                block.lane() % 4] = code ^ 128;
      } else {
        whole_value = whole_value && bits.finite;
        at.values[at.place * at.head_dim + d] = code;
      }
      if (block.lane() == 0) memory.scales.Set(n, bits.scale);
    }
    if (block.lane() < 2) {
      memory.finite.Set(block.warp() * 2 + block.lane(),
                        (block.lane() == 0 ? whole_key : whole_value) ? 1 : 0);
    }
    block.Sync();
    for (int64_t n = block.thread(); n < 2 * blocks; n += kThreads) {
      const int side = n < blocks ? 0 : 1;
      bool all = true;
      for (int w = 0; w < kWarps; ++w) {
        all = all && memory.finite.Get(w * 2 + side) != 0;
      }
      const uint32_t half = HalfOf(all ? memory.scales.Get(n) : NotANumber());
      const int64_t b = n % blocks;
      uint8_t* const to = side == 0
                              ? at.keys + b * kGroupRows * 34 + 2 * at.place
                              : at.values + kGroupRows * at.head_dim +
                                    2 * (at.place * blocks + b);
      to[0] = static_cast<uint8_t>(half & 255u);
      to[1] = static_cast<uint8_t>(half >> 8);
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_KV_ELEMENTS_H_
