#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_NORM_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_NORM_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/norm_kernel.h"
#include "kernels/cuda/fast/products_few_tokens.h"

namespace sluice::kernels::cuda {

// No bytes between members: see LaunchList.
struct StreamedNormArgs {
  const float* weight;  // null: no norm
  const int32_t* rows;  // or null
  float eps;
  int32_t columns;
  int64_t weight_floats;  // in shared memory: of all columns, or none
};
static_assert(sizeof(StreamedNormArgs) == 2 * sizeof(void*) + 16);

// TileRmsNorm of a token's row by every block that multiplies the token: the
// same chains, joined in the same order, whatever threads the block has. A
// thread has a chain, or two of long rows. Weights come before the row, to
// shared memory where there is room.
template <int kBlockThreads>
class StreamedNorm {
 public:
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kWarps = kThreads / kWarpLanes;
  using Norm = TileNormKernel<kThreads>;
  using Piece = typename Norm::Piece;
  // Of a thread: two chains are those of kNormedCols.
  static constexpr int kChains = 2;
  static_assert(kChains * Norm::kPiece == kNormedCols);
  static constexpr int kSums = kChains * kWarps;

  // weights: weight_floats of the block.
  SLUICE_DEVICE StreamedNorm(Block& block, const StreamedNormArgs& args,
                             const Shared<float>& weights)
      : block_(block),
        a_(args),
        weights_(weights),
        chains_(NormThreads(args.columns)) {}

  // Begins to copy the weights, which no kernel of a step writes, as a part of
  // the group of copies that is committed next.
  SLUICE_DEVICE void BringWeights() {
    if (a_.weight_floats == 0) {
      if (block_.thread() > 0) return;
      block_.Prefetch(a_.weight, a_.columns * int{sizeof(float)});
      return;
    }
    SLUICE_ROLL
    for (int c = 4 * ComputedHere(block_.thread()); c < a_.columns;
         c += 4 * kThreads) {
      block_.CopyAsync(weights_, c, a_.weight + c);
    }
  }

  // Calls set(column, more, quad) with four elements of the normed row, from
  // column + more on; more: a multiple of 512. Each comes once. A thread has
  // waited for its copies. sums: kSums floats of the block, which may use them
  // again behind the next barrier. All threads call.
  template <typename Set>
  SLUICE_DEVICE void Run(const float* row, const Shared<float>& sums,
                         const Set& set) {
    Piece own;
    Load(row, 0, own);
    if (IsLong()) {
      Piece more;
      Load(row, 1, more);
      AddChain(more, 1, sums);
    }
    AddChain(own, 0, sums);
    block_.Sync();
    const float scale = NormScale(SumOf(sums), a_.columns, a_.eps);
    const int chains = IsLong() ? kChains : 1;
    SLUICE_ROLL
    for (int chain = 0; chain < chains; ++chain) {
      if (chain > 0) Load(row, chain, own);
      Scale(own, chain, scale, set);
    }
  }

 private:
  SLUICE_DEVICE bool IsLong() const { return chains_ > kThreads; }
  // The first column of a chain of the thread, or one that the row has not.
  SLUICE_DEVICE int32_t ColumnOf(int chain) const {
    const int own = chain * kThreads + ComputedHere(block_.thread());
    return own < chains_ ? 4 * own : kNormedCols;
  }
  // From there to quad `j` of the chain.
  SLUICE_DEVICE int32_t MoreOf(int j) const { return 4 * j * chains_; }
  // Elements that the row has not are 0.
  SLUICE_DEVICE void Load(const float* row, int chain, Piece& to) const {
    const int32_t first = ColumnOf(chain);
    SLUICE_UNROLL
    for (int j = 0; j < Norm::kQuads; ++j) {
      const int32_t column = first + MoreOf(j);
      to[j] = {};
      if (column < a_.columns) to[j] = LoadQuad(row + column);
    }
  }
  SLUICE_DEVICE void AddChain(const Piece& own, int chain,
                              const Shared<float>& sums) {
    float sum = Norm::AddSquares(own, 0.0f);
    for (int mask = 16; mask > 0; mask /= 2) {
      sum = sum + block_.ShuffleXor(sum, mask);
    }
    if (block_.lane() == 0) sums.Set(chain * kWarps + block_.warp(), sum);
  }
  SLUICE_DEVICE float SumOf(const Shared<float>& sums) const {
    Quad all = LoadQuad(sums, 0);
    for (int w = 4; w < chains_ / kWarpLanes; w += 4) {
      all = AddQuads(all, LoadQuad(sums, w));
    }
    return (all.values[0] + all.values[1]) + (all.values[2] + all.values[3]);
  }
  template <typename Set>
  SLUICE_DEVICE void Scale(const Piece& own, int chain, float scale,
                           const Set& set) const {
    const int32_t first = ColumnOf(chain);
    SLUICE_UNROLL
    for (int j = 0; j < Norm::kQuads; ++j) {
      const int32_t column = first + MoreOf(j);
      if (column >= a_.columns) continue;
      const Quad weights = a_.weight_floats != 0
                               ? LoadQuad(weights_, column)
                               : LoadQuad(a_.weight + ComputedHere(column));
      set(first, MoreOf(j), NormedQuad(own[j], weights, scale));
    }
  }

  Block& block_;
  const StreamedNormArgs& a_;
  const Shared<float>& weights_;
  const int32_t chains_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_NORM_H_
