#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_WGMMA_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_WGMMA_H_

#include <cuda_device/device.h>
#include <cuda_device/groups.h>

#include <cstdint>

#include "kernels/cuda/fast/products_many_tokens_operands.h"

namespace sluice::kernels::cuda {

// BF16 as an operand of products_many_tokens.cc that four warps multiply
// together. A run is under way while the next one's weights are loaded:
// successive runs' are in two sets of registers.
template <int kTiles, int kOctets>
struct GroupOperand : EqualRuns<2 * kStepBytes / 4> {
  static_assert(kTiles == 1 && kOctets == kGroupOctets);
  static constexpr bool kInRuns = false;
  static constexpr bool kInGroups = true;
  using Sums = TileC[kTiles][kOctets];

  // Loads a run to set `kSet`, whose products are done. Of a run without its
  // second step that is the first one again.
  template <int kSet>
  SLUICE_DEVICE void Load(Block& block, const RunPlace& at, bool both) {
    const int own = at.weights + block.lane() * 4;
    weights_[kSet][0] = LoadTile(at.words, own);
    weights_[kSet][1] = LoadTile(at.words, own + (both ? kStepBytes / 4 : 0));
  }
  // Begins kSteps of a run.
  template <int kSet, int kSteps>
  SLUICE_DEVICE void Multiply(Block& block, const RunPlace& at, Sums& sums) {
    products_.FenceRegisters(sums[0]);
    for (int step = 0; step < kSteps; ++step) {
      products_.template Multiply<OctetWords(0)>(
          block, weights_[kSet][step], at.words,
          at.rows + step * kOctetStepWords, sums[0]);
    }
    products_.Commit();
  }
  // The products of the run before the last one begun are done.
  SLUICE_DEVICE void WaitForLast(Block& block) {
    products_.template Wait<1>(block);
  }
  SLUICE_DEVICE void Finish(Block& block, Sums& sums) {
    products_.WaitFor(block, sums[0]);
  }

 private:
  TileA weights_[2][2];
  GroupProducts products_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_WGMMA_H_
