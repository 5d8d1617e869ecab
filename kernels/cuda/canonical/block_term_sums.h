#ifndef SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_TERM_SUMS_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_TERM_SUMS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/block_format.h"

namespace sluice::kernels::cuda {

// What blocks of elements add to the sums of sixteen rows, in shared memory: a
// slot of kSlotFloats per block, with sixteen values and as many factors, of
// codes and, where kTerms is 2, of minima behind them.
template <int kTerms, int kSlotFloats>
struct BlockTerms {
  static constexpr int kAtOnce = 8 / kTerms;  // blocks whose terms are loaded
  struct Terms {
    float values[kTerms];
    float factors[kTerms];
  };

  // Adds a row's terms of `count` blocks to `sum` in rising k; `from`: the
  // row's first value. What is added next is read meanwhile.
  static SLUICE_DEVICE void Add(const Shared<float>& terms, int32_t from,
                                int32_t count, float& sum) {
    if (count >= kAtOnce) {
      Terms own[kAtOnce];
      Load(terms, from, own);
      for (count -= kAtOnce; count >= kAtOnce; count -= kAtOnce) {
        from += kAtOnce * kSlotFloats;
        Terms next[kAtOnce];
        Load(terms, from, next);
        AddAll(own, sum);
        SLUICE_UNROLL
        for (int i = 0; i < kAtOnce; ++i) own[i] = next[i];
      }
      from += kAtOnce * kSlotFloats;
      AddAll(own, sum);
    }
    AddRest<kAtOnce / 2>(terms, from, count, sum);
  }

 private:
  // Fewer than 2 * kCount blocks, in runs that halve: shards may be of few.
  template <int kCount>
  static SLUICE_DEVICE void AddRest(const Shared<float>& terms, int32_t from,
                                    int32_t count, float& sum) {
    if (count >= kCount) {
      Terms own[kCount];
      Load(terms, from, own);
      AddAll(own, sum);
      from += kCount * kSlotFloats;
      count -= kCount;
    }
    if constexpr (kCount > 1) AddRest<kCount / 2>(terms, from, count, sum);
  }
  template <int kCount>
  static SLUICE_DEVICE void Load(const Shared<float>& terms, int32_t from,
                                 Terms (&own)[kCount]) {
    SLUICE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      SLUICE_UNROLL
      for (int n = 0; n < kTerms; ++n) {
        const int32_t at = from + i * kSlotFloats + 2 * n * kGroupRows;
        own[i].values[n] = terms.Get(at);
        own[i].factors[n] = terms.Get(at + kGroupRows);
      }
    }
  }
  template <int kCount>
  static SLUICE_DEVICE void AddAll(const Terms (&own)[kCount], float& sum) {
    SLUICE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      SLUICE_UNROLL
      for (int n = 0; n < kTerms; ++n) {
        sum = Fma(own[i].values[n], own[i].factors[n], sum);
      }
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_TERM_SUMS_H_
