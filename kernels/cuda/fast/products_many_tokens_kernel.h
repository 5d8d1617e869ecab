#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_KERNEL_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_KERNEL_H_

#include <cuda_device/device.h>
#include <cuda_device/groups.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/fast/products_many_tokens_feeds.h"
#include "kernels/cuda/fast/products_many_tokens_operands.h"
#include "kernels/cuda/fast/products_many_tokens_pieces.h"
#include "kernels/cuda/shared/product_tile.h"

namespace sluice::kernels::cuda {

// What a block does. A feed brings runs of both operands to a ring of kStages
// places; a warp multiplies one run while the next ones are on their way.
template <typename Operand, typename Shape>
class GemmBlock {
 public:
  static constexpr int kThreads = Shape::kThreads;
  using Stage = GemmStage<Operand, Shape>;
  using Feed = std::conditional_t<Operand::kInGroups, GateFeed<Operand, Shape>,
                                  ThreadFeed<Operand, Shape>>;

  SLUICE_DEVICE GemmBlock(Block& block, const GemmArgs& a,
                          const ProductTile& tile)
      : block_(block),
        a_(a),
        tile_(tile),
        piece_(PieceOf(block, a)),
        words_(block.Kept(block.Allocate<uint32_t>(Stage::kRingWords))),
        levels_(block.Allocate<float>(a.shared_levels * Shape::kCells)),
        run_(RunAt(piece_.begin)),
        end_(RunAt(piece_.end)),
        feed_(block, a, tile, {words_, run_, end_}) {
    const int warp_row = block.warp() / Shape::kTokenWarps;
    const int warp_token = block.warp() % Shape::kTokenWarps;
    weights_ = warp_row * Shape::kTiles * Operand::kRunWords;
    operand_b_ =
        Stage::kWeightWords + warp_token * Shape::kOctets * Stage::kOctetWords;
  }

  // `waits`: for what kernels before write, all but the weights.
  SLUICE_DEVICE void Run(bool waits) {
    for (int i = 0; i < kAhead; ++i) {
      feed_.BringWeights(run_ + i, i * Stage::kWords);
    }
    if (waits) {
      if constexpr (Shape::kPrefetchBytes > 0) Prefetch();
      block_.WaitForInputs();
    }
    feed_.TakeRows();
    for (int i = 0; i < kAhead; ++i) {
      feed_.BringRows(run_ + i, i * Stage::kWords);
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
  static constexpr int kAhead = Feed::kAhead;

  // Asks for more of each row tile, for as long as the kernel waits.
  SLUICE_DEVICE void Prefetch() {
    if (block_.thread() >= Shape::kBlockTiles) return;
    const int64_t begin = Operand::WordsOf(run_ + kAhead);
    const int64_t end = Operand::WordsOf(end_);
    const int64_t all = RowTileWords<Operand>(a_);
    const int64_t words = (end < all ? end : all) - begin;
    constexpr int64_t kMost = Shape::kPrefetchBytes / 4;
    if (words <= 0) return;
    block_.Prefetch(
        WeightsOf<Operand, Shape>(block_, a_, tile_.w, block_.thread()) + begin,
        static_cast<int>(words < kMost ? words : kMost) * 4);
  }

  // The run at which a leaf begins, or at which the last one ends.
  SLUICE_DEVICE int32_t RunAt(int32_t leaf) const {
    return (a_.product.shards.bounds[leaf] + kRunCols - 1) / kRunCols;
  }
  SLUICE_DEVICE RunPlace Place() const {
    return {words_, at_ + weights_, at_ + operand_b_, run_};
  }

  // Waits for run `run`, if there is one, has a later one brought in the place
  // of the one before, and goes to its stage; to the last one's where there is
  // none.
  SLUICE_DEVICE void Next(int32_t run) {
    feed_.WaitOwn();
    block_.Sync();
    Bring(run + kAhead, at_);
    GoTo(run);
  }
  SLUICE_DEVICE void Bring(int32_t run, int stage) {
    feed_.BringWeights(run, stage);
    feed_.BringRows(run, stage);
  }
  SLUICE_DEVICE void GoTo(int32_t run) {
    if (run < end_) {
      at_ = at_ + Stage::kWords < Stage::kRingWords ? at_ + Stage::kWords : 0;
    }
  }

  SLUICE_DEVICE void Leaf(int32_t leaf, Sums& sums) {
    SLUICE_UNROLL
    for (int i = 0; i < Shape::kTiles; ++i) {
      SLUICE_UNROLL
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
      Multiply<0, 2>(run_, sums);
      NextOfGroup<1>(run_ + 1);
      Multiply<1, 2>(run_ + 1, sums);
      NextOfGroup<0>(run_ + 2);
    }
    if (run_ < whole) {
      Multiply<0, 2>(run_, sums);
      operand_.Finish(block_, sums);
      NextOfGroup<0>(++run_);
    }
    if (run_ < stop) Multiply<0, 1>(run_++, sums);
    operand_.Finish(block_, sums);
  }
  // Begins the products of a run; those of the run before are done behind it.
  // The one before that was done before the last barrier.
  template <int kSet, int kSteps>
  SLUICE_DEVICE void Multiply(int32_t run, Sums& sums) {
    operand_.template Multiply<kSet, kSteps>(block_, Place(), sums);
    constexpr int kTwo = 2 * Stage::kWords;
    Bring(run + kAhead,
          at_ >= kTwo ? at_ - kTwo : at_ + kAhead * Stage::kWords);
    operand_.WaitForLast(block_);
  }
  // As Next, and loads the weights.
  template <int kSet>
  SLUICE_DEVICE void NextOfGroup(int32_t run) {
    block_.Sync();
    GoTo(run);
    feed_.Wait(at_, run < end_);
    operand_.template Load<kSet>(block_, Place(), run < a_.whole_runs);
  }

  static SLUICE_DEVICE void Add(const Sums& right, Sums& left) {
    SLUICE_UNROLL
    for (int i = 0; i < Shape::kTiles; ++i) {
      SLUICE_UNROLL
      for (int o = 0; o < Shape::kOctets; ++o) {
        SLUICE_UNROLL
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
    SLUICE_UNROLL
    for (int i = 0; i < Shape::kTiles; ++i) {
      SLUICE_UNROLL
      for (int o = 0; o < Shape::kOctets; ++o) {
        SLUICE_UNROLL
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
    const float* const of_tile = TileAgain().bias;
    const bool has_bias = a_.pieces == nullptr && of_tile != nullptr;
    const float* const bias = ComputedHere(of_tile + Row());
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
  // What a block's tokens are, found anew: their registers are free meanwhile.
  SLUICE_DEVICE ProductTile TileAgain() const {
    ProductTile tile;
    FindGemmTile(
        a_, ComputedHere(static_cast<int>(block_.index() % a_.token_blocks)),
        tile);
    return tile;
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
    const ProductTile tile = TileAgain();
    const int tokens = tile.tokens - Token();
    const GemmPiece piece = PieceOf(block_, a_);
    float* to =
        ComputedHere(piece.to + (tile.out + Token()) * piece.stride + Row());
    SLUICE_UNROLL
    for (int o = 0; o < Shape::kOctets; ++o) {
      SLUICE_UNROLL
      for (int t = 0; t < 2; ++t) {
        if (o * 8 + t < tokens) {
          SLUICE_UNROLL
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
  // The warp's first words of a stage.
  int weights_;
  int operand_b_;
  int32_t run_;  // that is multiplied
  const int32_t end_;
  Feed feed_;
  // The run's stage: the first is next.
  int at_ = Stage::kRingWords - Stage::kWords;
  Operand operand_;
};

template <typename Operand, typename Shape>
struct GemmKernel {
  using Tile = GemmBlock<Operand, Shape>;
  static constexpr int kThreads = Tile::kThreads;
  static constexpr bool kWaitsItself = true;
  // But for levels of the tree.
  static constexpr size_t kSharedBytes =
      Tile::Stage::kRingWords * sizeof(uint32_t) + Tile::Feed::kSharedBytes;
  using Args = GemmArgs;
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    if constexpr (Operand::kInGroups && !GroupProducts::kHere) {
      return GroupProducts::Stop();
    }
    // A kernel before makes the list of groups.
    const bool grouped = a.product.grouped.groups != nullptr;
    if (grouped) block.WaitForInputs();
    ProductTile tile;
    if (!FindGemmTile(a, block.index() % a.token_blocks, tile)) return;
    Tile(block, a, tile).Run(!grouped);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_KERNEL_H_
