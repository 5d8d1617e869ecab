#ifndef SLUICE_KERNELS_CUDA_TILE_GEMM_KERNEL_H_
#define SLUICE_KERNELS_CUDA_TILE_GEMM_KERNEL_H_

// Size: a block's copies, products and joins share its place and its registers,
// and every shape and type is an instance of the same.

#include <cuda_device/device.h>
#include <cuda_device/groups.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/products_tiles.h"
#include "kernels/cuda/tile_gemm_operands.h"
#include "kernels/cuda/tile_gemm_pieces.h"

namespace sluice::kernels::cuda {

// The words of a row tile of the weight.
template <typename Operand>
SLUICE_DEVICE int64_t TileWords(const GemmArgs& a) {
  return Operand::kInRuns ? Operand::WordsOf(a.runs)
                          : StepsOf(a.product.cols) * (kStepBytes / 4);
}

// What a block does. Threads copy runs of both operands to a ring of kStages
// places; a warp multiplies one run while the next ones are on their way.
template <typename Operand, typename Shape>
class GemmBlock {
 public:
  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kWeightWords = Shape::kBlockTiles * Operand::kRunWords;
  static constexpr int kOctetWords = OctetWords(Operand::kTotals);
  static constexpr int kRowWords = Shape::kBlockOctets * kOctetWords;
  static constexpr int kStageWords = kWeightWords + kRowWords;
  static constexpr int kRingWords = Shape::kStages * kStageWords;

  SLUICE_DEVICE GemmBlock(Block& block, const GemmArgs& a,
                          const ProductTile& tile)
      : block_(block),
        a_(a),
        tile_(tile),
        piece_(PieceOf(block, a)),
        words_(block.Kept(block.Allocate<uint32_t>(kRingWords))),
        levels_(block.Allocate<float>(a.shared_levels * Shape::kCells)),
        run_(RunAt(piece_.begin)),
        end_(RunAt(piece_.end)) {
    FindPlace(block.index() / a.token_blocks % a.row_blocks,
              block.index() % a.token_blocks);
  }

  // `waits`: for what kernels before write, all but the weights.
  SLUICE_DEVICE void Run(bool waits) {
    for (int i = 0; i < kAhead; ++i) {
      BringWeights(run_ + i, i * kStageWords);
    }
    if (waits) {
      if constexpr (Shape::kPrefetchBytes > 0) Prefetch();
      block_.WaitForInputs();
    }
    for (int i = 0; i < kAhead; ++i) {
      BringRows(run_ + i, i * kStageWords);
      block_.CommitCopies();
    }
    if constexpr (Operand::kInGroups) {
      NextOfGroup<0>(run_);
    } else {
      Next(run_);
      if (run_ < end_) operand_.Start(block_, Place());
    }
    // The lowest level's sums wait in registers.
    Sums sums;
    Sums right;
    for (int32_t leaf = piece_.begin; leaf < piece_.end; leaf += 2) {
      Leaf(leaf, sums);
      if (leaf + 1 < piece_.end) {
        Leaf(leaf + 1, right);
        Add(right, sums);
      }
      Join(leaf, sums);
    }
    Store(sums);
  }

 private:
  using Sums = typename Operand::Sums;
  // Runs that are on their way while one is multiplied. Products in groups read
  // a run's place up to the next one's.
  static constexpr int kAhead = Shape::kStages - (Operand::kInGroups ? 2 : 1);
  // A thread's copies of 16 bytes of a run.
  static constexpr int kWeightCopies =
      (kWeightWords / 4 + kThreads - 1) / kThreads;
  static constexpr int kRowCopies = (kRowWords / 4 + kThreads - 1) / kThreads;
  static constexpr int kRunChunks = Operand::kRunWords / 4;

  // Rows of the weight behind the last are the last ones again.
  SLUICE_DEVICE void FindPlace(int64_t row_block, int64_t token_block) {
    const int64_t tile = row_block * Shape::kBlockTiles;
    const int64_t last = (a_.product.rows - 1) / kTileSide;
    // All copies of a thread are of the same step of a run.
    static_assert(Operand::kInRuns || kThreads % kRunChunks == 0);
    const bool first = block_.thread() % kRunChunks < kRunChunks / 2;
    weights_end_ = Operand::kInRuns || first || end_ < a_.whole_runs
                       ? end_
                       : a_.whole_runs;
    const int64_t tile_words = TileWords<Operand>(a_);
    for (int i = 0; i < kWeightCopies; ++i) {
      const int c = i * kThreads + block_.thread();
      const int64_t own = tile + c / kRunChunks;
      from_weights_[i] = static_cast<const uint32_t*>(tile_.w) +
                         (own < last ? own : last) * tile_words +
                         Operand::WordsOf(run_) + c % kRunChunks * 4;
    }
    from_rows_ = a_.rows + (token_block * a_.runs + run_) * kRowWords +
                 block_.thread() * 4;

    const int warp_row = block_.warp() / Shape::kTokenWarps;
    const int warp_token = block_.warp() % Shape::kTokenWarps;
    weights_ = warp_row * Shape::kTiles * Operand::kRunWords;
    operand_b_ = kWeightWords + warp_token * Shape::kOctets * kOctetWords;
  }

  // Asks for more of each row tile, for as long as the kernel waits.
  SLUICE_DEVICE void Prefetch() {
    const int64_t row_block = block_.index() / a_.token_blocks % a_.row_blocks;
    const int64_t tile = row_block * Shape::kBlockTiles + block_.thread();
    if (block_.thread() >= Shape::kBlockTiles ||
        tile * kTileSide >= a_.product.rows) {
      return;
    }
    const int64_t begin = Operand::WordsOf(run_ + kAhead);
    const int64_t end = Operand::WordsOf(end_);
    const int64_t tile_words = TileWords<Operand>(a_);
    const int64_t words = (end < tile_words ? end : tile_words) - begin;
    const auto* const from =
        static_cast<const uint32_t*>(tile_.w) + tile * tile_words + begin;
    constexpr int64_t kMost = Shape::kPrefetchBytes / 4;
    if (words <= 0) return;
    block_.Prefetch(from, static_cast<int>(words < kMost ? words : kMost) * 4);
  }

  // The run at which a leaf begins, or at which the last one ends.
  SLUICE_DEVICE int32_t RunAt(int32_t leaf) const {
    return (a_.product.shards.bounds[leaf] + kRunCols - 1) / kRunCols;
  }
  SLUICE_DEVICE RunPlace Place() const {
    return {words_, at_ + weights_, at_ + operand_b_, run_};
  }

  // Start the copies of a run to the stage at `stage`, if there is one. Runs
  // are brought in their order. No branch is around all: copies are put between
  // products.
  SLUICE_DEVICE void BringWeights(int32_t run, int stage) {
    const int to = stage + block_.thread() * 4;
    for (int i = 0; i < kWeightCopies; ++i) {
      if (run < weights_end_ && HasCopy(i, kWeightWords)) {
        block_.CopyAsync(words_, to + i * kThreads * 4, from_weights_[i]);
      }
      from_weights_[i] += Operand::WordsToNext(
          run, (i * kThreads + block_.thread()) % kRunChunks);
    }
  }
  SLUICE_DEVICE void BringRows(int32_t run, int stage) {
    const int to = stage + kWeightWords + block_.thread() * 4;
    for (int i = 0; i < kRowCopies; ++i) {
      if (run >= end_ || !HasCopy(i, kRowWords)) continue;
      block_.CopyAsync(words_, to + i * kThreads * 4,
                       from_rows_ + i * kThreads * 4);
    }
    from_rows_ += kRowWords;
  }
  SLUICE_DEVICE bool HasCopy(int i, int words) const {
    const int chunks = words / 4;
    return (i + 1) * kThreads <= chunks ||
           i * kThreads + block_.thread() < chunks;
  }

  // Waits for run `run`, if there is one, has a later one brought in the place
  // of the last that is done, and goes to its stage; to the last one's where
  // there is none.
  SLUICE_DEVICE void Next(int32_t run) {
    block_.WaitCopies<kAhead - 1>();
    if constexpr (Operand::kInGroups) GroupProducts::FenceCopies(block_);
    block_.Sync();
    int done = at_;
    if constexpr (Operand::kInGroups) {
      done = at_ > 0 ? at_ - kStageWords : kRingWords - kStageWords;
    }
    BringWeights(run + kAhead, done);
    BringRows(run + kAhead, done);
    block_.CommitCopies();
    if (run < end_)
      at_ = at_ + kStageWords < kRingWords ? at_ + kStageWords : 0;
  }

  SLUICE_DEVICE void Leaf(int32_t leaf, Sums& sums) {
    for (int i = 0; i < Shape::kTiles; ++i) {
      for (int o = 0; o < Shape::kOctets; ++o) sums[i][o] = {};
    }
    const int32_t stop = RunAt(leaf + 1);
    const int32_t whole =
        Operand::kInRuns || stop < a_.whole_runs ? stop : a_.whole_runs;
    if constexpr (Operand::kInGroups) {
      Groups(whole, stop, sums);
    } else {
      for (; run_ < whole; ++run_) {
        operand_.First(block_, Place(), sums);
        Next(run_ + 1);
        operand_.Second(block_, Place(), sums);
      }
      // The last run of all has no more.
      for (; run_ < stop; ++run_) operand_.FirstAlone(block_, sums);
    }
  }

  // The same of products in groups: a run's are under way while the block
  // waits for the next one.
  SLUICE_DEVICE void Groups(int32_t whole, int32_t stop, Sums& sums) {
    SLUICE_ROLL
    for (; run_ + 1 < whole; run_ += 2) {
      operand_.template Multiply<0, 2>(block_, Place(), sums);
      NextOfGroup<1>(run_ + 1);
      operand_.template Multiply<1, 2>(block_, Place(), sums);
      NextOfGroup<0>(run_ + 2);
    }
    if (run_ < whole) {
      operand_.template Multiply<0, 2>(block_, Place(), sums);
      operand_.Finish(block_, sums);
      NextOfGroup<0>(++run_);
    }
    if (run_ < stop) {
      operand_.template Multiply<0, 1>(block_, Place(), sums);
      ++run_;
    }
    operand_.Finish(block_, sums);
  }
  template <int kSet>
  SLUICE_DEVICE void NextOfGroup(int32_t run) {
    Next(run);
    operand_.template Load<kSet>(block_, Place(), run < a_.whole_runs);
  }

  static SLUICE_DEVICE void Add(const Sums& right, Sums& left) {
    for (int i = 0; i < Shape::kTiles; ++i) {
      for (int o = 0; o < Shape::kOctets; ++o) {
        for (int v = 0; v < 4; ++v) {
          left[i][o].values[v] = left[i][o].values[v] + right[i][o].values[v];
        }
      }
    }
  }
  // Joins the sum of leaf `leaf` and the next with those that wait for it; then
  // it waits itself, but for the last. A level that shared memory has not waits
  // where the output goes.
  SLUICE_DEVICE void Join(int32_t leaf, Sums& sums) {
    const int32_t n = leaf - piece_.begin;
    const bool last = leaf + 2 >= piece_.end;
    const int top = TreeLevels(piece_.end - piece_.begin) - 1;
    for (int level = 1; level <= top; ++level) {
      const bool waits = (n >> level & 1) != 0;
      if (!waits && last) continue;
      if (level > a_.shared_levels) {
        JoinAtOutput(waits, sums);
      } else {
        JoinAtLevel(level, waits, sums);
      }
      if (!waits) return;
    }
  }
  // Adds what waits to the sums, or has the sums wait.
  SLUICE_DEVICE void JoinAtOutput(bool waits, Sums& sums) {
    ForOutputs(sums, [&](float& sum, float* at, int) {
      if (waits) {
        sum = *at + sum;
      } else {
        *at = sum;
      }
    });
  }
  SLUICE_DEVICE void JoinAtLevel(int level, bool waits, Sums& sums) {
    const int begin =
        (level - 1) * static_cast<int>(Shape::kCells) + block_.thread();
    for (int i = 0; i < Shape::kTiles; ++i) {
      for (int o = 0; o < Shape::kOctets; ++o) {
        for (int v = 0; v < 4; ++v) {
          const int at = begin + ((i * Shape::kOctets + o) * 4 + v) * kThreads;
          float& sum = sums[i][o].values[v];
          if (waits) {
            sum = levels_.Get(at) + sum;
          } else {
            levels_.Set(at, sum);
          }
        }
      }
    }
  }
  SLUICE_DEVICE void Store(Sums& sums) {
    const bool has_bias = a_.pieces == nullptr && tile_.bias != nullptr;
    const float* const bias = ComputedHere(tile_.bias + Row());
    ForOutputs(sums, [&](float sum, float* at, int row) {
      *at = has_bias ? sum + bias[row] : sum;
    });
  }
  // The lane's first row, and its first token from the block's first on: found
  // anew where outputs are, registers are few before.
  SLUICE_DEVICE int Row() const {
    const auto row_block =
        static_cast<int>(block_.index() / a_.token_blocks % a_.row_blocks);
    const int warp_row = block_.warp() / Shape::kTokenWarps;
    return (row_block * Shape::kBlockTiles + warp_row * Shape::kTiles) *
               kTileSide +
           block_.lane() / 4;
  }
  SLUICE_DEVICE int Token() const {
    return block_.warp() % Shape::kTokenWarps * Shape::kOctets * 8 +
           block_.lane() % 4 * 2;
  }
  // Calls visit(sum, where it goes, rows behind the lane's first) for a lane's
  // sums of outputs that there are.
  template <typename Visit>
  SLUICE_DEVICE void ForOutputs(Sums& sums, const Visit& visit) {
    const int rows = static_cast<int>(a_.product.rows) - Row();
    const int tokens = tile_.tokens - Token();
    const GemmPiece piece = PieceOf(block_, a_);
    float* to =
        ComputedHere(piece.to + (tile_.out + Token()) * piece.stride + Row());
    for (int o = 0; o < Shape::kOctets; ++o) {
      for (int t = 0; t < 2; ++t) {
        if (o * 8 + t < tokens) {
          for (int i = 0; i < 2 * Shape::kTiles; ++i) {
            float& sum = sums[i / 2][o].values[i % 2 * 2 + t];
            if (i * 8 < rows) visit(sum, to + i * 8, i * 8);
          }
        }
        to = to + (t == 0 ? 1 : 7) * piece.stride;
      }
    }
  }

  Block& block_;
  const GemmArgs& a_;
  const ProductTile& tile_;
  const GemmPiece piece_;
  const Shared<uint32_t> words_;
  const Shared<float> levels_;
  // The thread's copies of the run that is brought next.
  const uint32_t* from_weights_[kWeightCopies];
  const uint32_t* from_rows_;
  // The warp's first words of a stage.
  int weights_;
  int operand_b_;
  int32_t run_;  // that is multiplied
  const int32_t end_;
  int32_t weights_end_;  // of the runs of which the thread copies weights
  int at_ = kRingWords - kStageWords;  // the run's stage: the first is next
  Operand operand_;
};

template <typename Operand, typename Shape>
struct GemmKernel {
  using Tile = GemmBlock<Operand, Shape>;
  static constexpr int kThreads = Tile::kThreads;
  static constexpr bool kWaitsItself = true;
  static constexpr size_t kRingBytes = Tile::kRingWords * sizeof(uint32_t);
  using Args = GemmArgs;
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    if constexpr (Operand::kInGroups && !GroupProducts::kHere) return;
    // A kernel before makes the list of groups.
    const bool grouped = a.product.grouped.groups != nullptr;
    if (grouped) block.WaitForInputs();
    ProductTile tile;
    if (!FindGemmTile(a, block.index() % a.token_blocks, tile)) return;
    Tile(block, a, tile).Run(!grouped);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_GEMM_KERNEL_H_
