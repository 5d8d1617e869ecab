#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_FEEDS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_FEEDS_H_

#include <cuda_device/device.h>
#include <cuda_device/gates.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/fast/products_many_tokens_operands.h"
#include "kernels/cuda/fast/products_many_tokens_pieces.h"
#include "kernels/cuda/shared/product_tile.h"

namespace sluice::kernels::cuda {

// How blocks of products_many_tokens.cc bring runs to the places of their ring,
// the next kAhead while one is multiplied. Runs are brought in their order;
// none behind the last.

// The words of a run in the ring: its weights, then its activations.
template <typename Operand, typename Shape>
struct GemmStage {
  static constexpr int kWeightWords = Shape::kBlockTiles * Operand::kRunWords;
  static constexpr int kOctetWords = OctetWords(Operand::kTotals);
  static constexpr int kRowWords = Shape::kBlockOctets * kOctetWords;
  static constexpr int kWords = kWeightWords + kRowWords;
  static constexpr int kRingWords = Shape::kStages * kWords;
};

// What a block brings: runs [begin, end) of its rows of the weight and of its
// tokens.
struct FeedRuns {
  Shared<uint32_t> ring;
  int32_t begin;
  int32_t end;
};

// The words of a row tile of the weight.
template <typename Operand>
SLUICE_DEVICE int64_t RowTileWords(const GemmArgs& a) {
  return Operand::kInRuns ? Operand::WordsOf(a.runs)
                          : StepsOf(a.product.cols) * (kStepBytes / 4);
}

// Where the block's row tile `tile` begins; tiles behind the last are the last
// one again.
template <typename Operand, typename Shape>
SLUICE_DEVICE const uint32_t* WeightsOf(const Block& block, const GemmArgs& a,
                                        const void* w, int tile) {
  const int64_t row_block = block.index() / a.token_blocks % a.row_blocks;
  const int64_t own = row_block * Shape::kBlockTiles + tile;
  const int64_t last = (a.product.rows - 1) / kTileSide;
  return static_cast<const uint32_t*>(w) +
         (own < last ? own : last) * RowTileWords<Operand>(a);
}

// Every thread copies some sixteens of bytes of a run.
template <typename Operand, typename Shape>
class ThreadFeed {
 public:
  using Stage = GemmStage<Operand, Shape>;
  static constexpr int kAhead = Shape::kStages - 1;
  static constexpr size_t kSharedBytes = 0;

  SLUICE_DEVICE ThreadFeed(Block& block, const GemmArgs& a,
                           const ProductTile& tile, const FeedRuns& runs)
      : block_(block), ring_(runs.ring), rows_(a.rows), end_(runs.end) {
    // All copies of a thread are of the same step of a run.
    static_assert(Operand::kInRuns || kThreads % kRunChunks == 0);
    const bool first = block.thread() % kRunChunks < kRunChunks / 2;
    weights_end_ =
        Operand::kInRuns || first || end_ < a.whole_runs ? end_ : a.whole_runs;
    for (int i = 0; i < kWeightCopies; ++i) {
      const int c = i * kThreads + block.thread();
      from_weights_[i] =
          WeightsOf<Operand, Shape>(block, a, tile.w, c / kRunChunks) +
          Operand::WordsOf(runs.begin) + c % kRunChunks * 4;
    }
    const int64_t token_block = block.index() % a.token_blocks;
    row_quads_ = static_cast<uint32_t>(token_block * a.runs + runs.begin) *
                     (Stage::kRowWords / 4) +
                 static_cast<uint32_t>(block.thread());
  }
  // Start the copies of a run to the stage at `stage`, weights first. No branch
  // is around all: copies are put between products.
  SLUICE_DEVICE void BringWeights(int32_t run, int stage) {
    const int to = stage + block_.thread() * 4;
    for (int i = 0; i < kWeightCopies; ++i) {
      if (run < weights_end_ && HasCopy(i, Stage::kWeightWords)) {
        block_.CopyAsync(ring_, to + i * kThreads * 4, from_weights_[i]);
      }
      from_weights_[i] += Operand::WordsToNext(
          run, (i * kThreads + block_.thread()) % kRunChunks);
    }
  }
  SLUICE_DEVICE void BringRows(int32_t run, int stage) {
    const int to = stage + Stage::kWeightWords + block_.thread() * 4;
    for (int i = 0; i < kRowCopies; ++i) {
      if (run >= end_ || !HasCopy(i, Stage::kRowWords)) continue;
      block_.CopyAsync(ring_, to + i * kThreads * 4,
                       rows_ + (int64_t{row_quads_} + i * kThreads) * 4);
    }
    row_quads_ += Stage::kRowWords / 4;
    block_.CommitCopies();
  }
  // Kernels before have written the rows.
  SLUICE_DEVICE void TakeRows() {}
  // The thread's copies of the next run are done.
  SLUICE_DEVICE void WaitOwn() { block_.WaitCopies<kAhead - 1>(); }

 private:
  static constexpr int kThreads = Shape::kThreads;
  // A thread's copies of a run.
  static constexpr int kWeightCopies =
      (Stage::kWeightWords / 4 + kThreads - 1) / kThreads;
  static constexpr int kRowCopies =
      (Stage::kRowWords / 4 + kThreads - 1) / kThreads;
  static constexpr int kRunChunks = Operand::kRunWords / 4;

  SLUICE_DEVICE bool HasCopy(int i, int words) const {
    const int chunks = words / 4;
    return (i + 1) * kThreads <= chunks ||
           i * kThreads + block_.thread() < chunks;
  }

  Block& block_;
  const Shared<uint32_t> ring_;
  // The thread's copies of the run that is brought next.
  const uint32_t* from_weights_[kWeightCopies];
  const uint32_t* const rows_;
  uint32_t row_quads_;  // behind those: four words each
  const int32_t end_;
  int32_t weights_end_;  // of the runs of which the thread copies weights
};

// Every warp starts two copies of a run: of a row tile, and of its share of the
// activations. Products in groups read a run's place while the next one is
// multiplied, so one run less is ahead.
template <typename Operand, typename Shape>
class GateFeed {
 public:
  using Stage = GemmStage<Operand, Shape>;
  static constexpr int kAhead = Shape::kStages - 2;
  static constexpr size_t kSharedBytes =
      (Shape::kStages * sizeof(uint64_t) + 15) / 16 * 16;

  SLUICE_DEVICE GateFeed(Block& block, const GemmArgs& a,
                         const ProductTile& tile, const FeedRuns& runs)
      : block_(block),
        ring_(runs.ring),
        gates_(block, Shape::kStages, kWarps),
        warp_(block.Shuffle(block.warp(), 0)),
        from_weights_(WeightsOf<Operand, Shape>(block, a, tile.w, warp_) +
                      Operand::WordsOf(runs.begin)),
        from_rows_(a.rows +
                   (block.index() % a.token_blocks * a.runs + runs.begin) *
                       Stage::kRowWords +
                   warp_ * kOwnRows),
        end_(runs.end),
        whole_runs_(a.whole_runs) {}
  SLUICE_DEVICE void BringWeights(int32_t run, int stage) {
    const int own =
        run < whole_runs_ ? Operand::kRunWords : Operand::kRunWords / 2;
    const int words = run < end_ ? own : 0;
    gates_.Open(block_, GateOf(stage), words > 0 ? (words + kOwnRows) * 4 : 0);
    gates_.Copy(block_, GateOf(stage), ring_,
                stage + warp_ * Operand::kRunWords, from_weights_, words);
    from_weights_ += Operand::kRunWords;
  }
  SLUICE_DEVICE void TakeRows() { gates_.FenceMemory(); }
  SLUICE_DEVICE void BringRows(int32_t run, int stage) {
    gates_.Copy(block_, GateOf(stage), ring_,
                stage + Stage::kWeightWords + warp_ * kOwnRows, from_rows_,
                run < end_ ? kOwnRows : 0);
    from_rows_ += Stage::kRowWords;
  }
  // Waits for the run at `stage`; `next`: it is the next one, not the same.
  SLUICE_DEVICE void Wait(int stage, bool next) {
    odd_ ^= next && stage == 0 ? 1 : 0;
    gates_.Wait(block_, GateOf(stage), odd_);
  }

 private:
  static constexpr int kWarps = Shape::kThreads / kWarpLanes;
  static_assert(kWarps == Shape::kBlockTiles);
  static constexpr int kOwnRows = Stage::kRowWords / kWarps;

  static SLUICE_DEVICE int GateOf(int stage) {
    return static_cast<int>(static_cast<uint32_t>(stage) / Stage::kWords);
  }

  Block& block_;
  const Shared<uint32_t> ring_;
  Gates gates_;
  const int warp_;  // the same register for all lanes
  const uint32_t* from_weights_;
  const uint32_t* from_rows_;
  const int32_t end_;
  const int32_t whole_runs_;
  int odd_ = 1;  // of the pass through the ring
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_FEEDS_H_
