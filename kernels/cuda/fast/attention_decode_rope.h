#ifndef SLUICE_KERNELS_CUDA_FAST_ATTENTION_DECODE_ROPE_H_
#define SLUICE_KERNELS_CUDA_FAST_ATTENTION_DECODE_ROPE_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/attention_common.h"
#include "kernels/cuda/fast/kv_readers.h"
#include "kernels/cuda/shared/kv_elements.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// What a block of LeafDecodeKernel does with its token's row: norms, rotary
// positions, and the new key and value to the cache, with the bits of
// RmsNormHeads, RopeStoreKv and StoreKv. Its rows are the run's heads of q,
// behind them the key, behind that the value, by threads of four elements:
// those that a lane of a query's operand has.
template <typename Reader, int kDim>
struct OwnRows {
  static constexpr int kSteps = kDim / 16;
  static constexpr int kRowsAtOnce = kMostHeads * kLeafWarps / kSteps;
  using Stored = typename Reader::Stored;
  static constexpr bool kHasBlocks = sizeof(Stored) == 1;
  using BlockStore = Q8HeadStore<kLeafWarps>;
  static constexpr size_t kSharedBytes =
      (kMostHeads + 4) * sizeof(float) +
      (kHasBlocks ? 2 * kDim * sizeof(float) + BlockStore::SharedBytes(kDim)
                  : 0);

  struct Memory {
    Shared<float> scales;  // of norms, by row
    Shared<float> raw;     // Q8_0: key and value before they are rounded
    typename BlockStore::Memory blocks;
  };
  static SLUICE_DEVICE Memory MemoryOf(Block& block) {
    const auto scales = block.Allocate<float>(kMostHeads + 4);
    if constexpr (kHasBlocks) {
      const auto raw = block.Allocate<float>(2 * kDim);
      return {scales, raw, BlockStore::MemoryOf(block, kDim)};
    } else {
      return {scales, scales, {scales, block.Allocate<int32_t>(0)}};
    }
  }

  struct Token {
    const float* row;  // its first head of q
    int position;
    HeadRun run;
    bool stores;  // it has a key and a value
    KvSpot spot;  // where those go

    SLUICE_DEVICE int rows() const { return run.count + (stores ? 2 : 0); }
  };
  static SLUICE_DEVICE const float* RowAt(const TileAttentionArgs& a,
                                          const Token& token, int row) {
    const auto q_heads = static_cast<int>(a.attention.queries.num_heads);
    const auto kv_heads = static_cast<int>(a.attention.kv.num_kv_heads);
    const int key = q_heads + token.run.kv_head;
    const int head = row < token.run.count    ? token.run.first + row
                     : row == token.run.count ? key
                                              : key + kv_heads;
    return ComputedHere(token.row + head * kDim);
  }
  static SLUICE_DEVICE const HeadNorm& NormOf(const TileAttentionArgs& a,
                                              const Token& token, int row) {
    return row < token.run.count ? a.rope.q_norm : a.rope.k_norm;
  }

  // What norms multiply rows by. All threads call; a barrier follows.
  static SLUICE_DEVICE void FindScales(Block& block, const TileAttentionArgs& a,
                                       const Token& token,
                                       const Memory& memory) {
    const int rows = token.run.count + (token.stores ? 1 : 0);
    for (int row = block.warp(); row < rows; row += kLeafWarps) {
      const float* const x = RowAt(a, token, row) + block.lane() % 16;
      float sum = 0.0f;
      SLUICE_UNROLL
      for (int i = 0; i < kSteps; ++i) sum = Fma(x[16 * i], x[16 * i], sum);
      const float mean = SumLanes(block, sum) / static_cast<float>(kDim);
      if (block.lane() != 0) continue;
      memory.scales.Set(row,
                        1.0f / SquareRoot(mean + NormOf(a, token, row).eps));
    }
  }

  // How the thread's elements of every row rotate.
  struct Turn {
    int d;        // the first of them
    int partner;  // of d; d itself: pairs are neighbours
    bool rotates;
    Quad cos;
    Quad sin;
  };
  static SLUICE_DEVICE Turn TurnOf(const Block& block, const RowRope& rope,
                                   int position) {
    const int step = block.warp() % kSteps;
    const int d = step / 2 * 32 + block.lane() % 4 * 8 + step % 2 * 4;
    const auto half = static_cast<int>(rope.table.half);
    Turn turn = {d, d, d < 2 * half, {}, {}};
    if (!turn.rotates) return turn;
    const float* const cos = rope.table.cos + int64_t{position} * half;
    const float* const sin = rope.table.sin + int64_t{position} * half;
    if (rope.half_split != 0) {
      turn.partner = d < half ? d + half : d - half;
      const int own = d < half ? d : d - half;
      turn.cos = LoadQuad(cos + own);
      turn.sin = LoadQuad(sin + own);
      return turn;
    }
    const int own = d / 2;
    turn.cos = {{cos[own], cos[own], cos[own + 1], cos[own + 1]}};
    turn.sin = {{sin[own], sin[own], sin[own + 1], sin[own + 1]}};
    return turn;
  }

  // The thread's elements of a row, ready to be stored.
  static SLUICE_DEVICE Quad Turned(const TileAttentionArgs& a,
                                   const Token& token, const Memory& memory,
                                   const Turn& turn, int row) {
    const float* const x = RowAt(a, token, row);
    const bool is_value = row > token.run.count;
    const float* const weight =
        is_value ? nullptr : NormOf(a, token, row).weight;
    const float scale = weight != nullptr ? memory.scales.Get(row) : 1.0f;
    const auto load = [&](int d) {
      Quad four = LoadQuad(x + d);
      if (weight == nullptr) return four;
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        four.values[i] = four.values[i] * scale * weight[d + i];
      }
      return four;
    };
    Quad own = load(turn.d);
    if (is_value || !turn.rotates) return own;
    Quad other = {{own.values[1], own.values[0], own.values[3], own.values[2]}};
    const bool split = turn.partner != turn.d;
    if (split) other = load(turn.partner);
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float product = other.values[i] * turn.sin.values[i];
      const bool is_first = split ? turn.d < turn.partner : i % 2 == 0;
      own.values[i] =
          Fma(own.values[i], turn.cos.values[i], is_first ? -product : product);
    }
    return own;
  }

  // Sets the queries, and stores the key and the value if the token has them.
  // All threads call; a barrier follows.
  static SLUICE_DEVICE void Set(Block& block, const TileAttentionArgs& a,
                                const Token& token, const Memory& memory,
                                const Shared<TileB>& q) {
    if (a.rope.q_norm.weight != nullptr || a.rope.k_norm.weight != nullptr) {
      FindScales(block, a, token, memory);
      block.Sync();
    }
    const Turn turn = TurnOf(block, a.rope, token.position);
    const int rows = token.rows();
    const float scale = a.attention.queries.scale * kLog2OfE;
    const int first = block.warp() / kSteps * kMostHeads + block.lane() / 4;
    SLUICE_ROLL
    for (int row = first; row < kMostHeads || row < rows; row += kRowsAtOnce) {
      Quad own = {};
      if (row < rows) own = Turned(a, token, memory, turn, row);
      if (row < kMostHeads) {
        const Quad query = row < token.run.count ? own : Quad{};
        q.Set(block.warp() % kSteps * kWarpLanes + row * 4 + block.lane() % 4,
              WordsOf(query, scale));
      }
      if (row >= token.run.count && row < rows) {
        Keep(token, memory, row == token.run.count, turn.d, own);
      }
    }
  }
  static SLUICE_DEVICE void Keep(const Token& token, const Memory& memory,
                                 bool is_key, int d, const Quad& own) {
    if constexpr (kHasBlocks) {
      StoreQuad(memory.raw, (is_key ? 0 : kDim) + d, own);
    } else {
      void* const base = is_key ? token.spot.kv->keys : token.spot.kv->values;
      StoreFour(own, static_cast<Stored*>(base) + token.spot.Element() + d);
    }
  }
  // Behind that and a barrier, of a token that stores: the key and the value
  // are in the cache, for the whole block. All threads call.
  static SLUICE_DEVICE void Finish(Block& block, const Token& token,
                                   const Memory& memory) {
    if constexpr (kHasBlocks) {
      const KvView& kv = *token.spot.kv;
      const int64_t page =
          token.spot.head_page * (kDim / kShortBlock * Reader::kPageBytes);
      BlockStore::Run(
          block, memory.blocks,
          {static_cast<uint8_t*>(kv.keys) + page,
           static_cast<uint8_t*>(kv.values) + page, token.spot.place, kDim},
          [&](bool is_key, int64_t d) {
            return memory.raw.Get((is_key ? 0 : kDim) + d);
          });
      block.Sync();
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_ATTENTION_DECODE_ROPE_H_
