#ifndef SLUICE_KERNELS_CUDA_FAST_ATTENTION_DECODE_H_
#define SLUICE_KERNELS_CUDA_FAST_ATTENTION_DECODE_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/attention_common.h"
#include "kernels/cuda/fast/attention_decode_rope.h"
#include "kernels/cuda/fast/kv_readers.h"
#include "kernels/cuda/shared/attention_partials.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// A block per token, run of heads and piece. A warp has 32 positions' keys and
// 16 elements of all positions' values: all keys and the first values
// are under way before the first product, the others before its maxima are.
// Query g of a tile's rows is head g of the run, rows 8 to 15 are empty.
// Where the launch has the token's row as a product left it, keys and values
// of earlier positions are on their way before that is there.
template <typename Reader, int kDim>
struct LeafDecodeKernel {
  static constexpr int kThreads = kLeafThreads;
  static constexpr int kLeastBlocks = 2;
  static constexpr bool kWaitsItself = true;
  using Args = TileAttentionArgs;

  static constexpr int kWarpSteps = kPieceSteps / kLeafWarps;
  static constexpr int kWarpElements = 16;
  static constexpr int kBlocks = kDim / 32;
  static constexpr int kQueryCells = kDim / 16 * kWarpLanes;
  static constexpr int kMaxima = kLeafWarps * kMostHeads;
  static constexpr int kSums = kLeafWarps * kWarpLanes;
  static constexpr int kWeightCells = kPieceSteps * kWarpLanes;
  using Own = OwnRows<Reader, kDim>;
  static constexpr size_t kSharedBytes =
      (kQueryCells + kWeightCells) * sizeof(TileB) +
      (kMaxima + kSums) * sizeof(float) + Own::kSharedBytes;
  static_assert(kDim <= kLeafWarps * kWarpElements && kWarpSteps == 2);

  struct Memory {
    Shared<TileB> q;        // [step of the head][lane]
    Shared<float> maxima;   // [warp][query]
    Shared<float> sums;     // of weights, [warp][lane]
    Shared<TileB> weights;  // operand A's words 0 and 2, [step][lane]
    typename Own::Memory own;
  };
  struct Place {
    int64_t token;
    int64_t chunk;
    HeadRun run;
    Seen seen;
    int own;  // the token's position, if the launch stores it; or -1
    KvView kv;
    int32_t page;  // of kv's heads, the run's on the lane's page, if seen

    SLUICE_DEVICE bool HasStep(int step) const {
      return seen.Meets(step * kStepPositions, (step + 1) * kStepPositions);
    }
  };
  struct Steps {
    int begin;
    int end;
  };
  // Steps whose values are asked for with the keys: registers have no room for
  // all beside another block's.
  static constexpr int kFirstSteps = kDim == 64 ? 8 : Reader::kCopies ? 6 : 4;
  // Steps whose values are asked for before the row is there: registers hold no
  // more beside a row that rotates.
  static constexpr int kEarlySteps = kDim == 64 ? 8 : 0;
  using Keys = TileA[kWarpSteps][2][kBlocks];
  using Values = uint32_t[kPieceSteps][4];
  struct Factors {
    float of_leaf[kPieceLeaves];
    float max;
  };

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const AttentionQueries& queries = a.attention.queries;
    const Place at = PlaceOf(block, a);
    // The step's lists are there before its first kernel, and so are earlier
    // keys where the launch stores the step's own; queries are not.
    const bool ropes = a.rope.table.cos != nullptr;
    if (!ropes) block.WaitForInputs();
    if (at.seen.begin >= at.seen.end) {  // the whole block
      if (ropes) block.WaitForInputs();
      return;
    }
    const Memory memory = {
        block.Allocate<TileB>(kQueryCells), block.Allocate<float>(kMaxima),
        block.Allocate<float>(kSums), block.Allocate<TileB>(kWeightCells),
        Own::MemoryOf(block)};
    Quad query = {};
    if (!ropes) query = QueryOf(block, queries, at);
    Place others = at;
    if (at.own >= 0) others.seen.end = at.own;
    Keys keys = {};
    LoadKeys(block, others, keys);
    Values values = {};
    LoadValues(block, others, {0, kEarlySteps}, values);
    if (ropes) TakeRow(block, a, at, memory, keys, values);
    LoadValues(block, at, {kEarlySteps, kFirstSteps}, values);
    if (!ropes && block.thread() < kQueryCells) {
      memory.q.Set(block.thread(), WordsOf(query, queries.scale * kLog2OfE));
    }
    block.Sync();
    TileC scores[kWarpSteps][2] = {};
    Score(block, memory, keys, scores);
    // Where the keys were.
    LoadValues(block, at, {kFirstSteps, kPieceSteps}, values);
    KeepMaxima(block, at, scores, memory);
    block.Sync();
    const Factors factors = Weigh(block, memory, scores);
    block.Sync();
    if (block.warp() * kWarpElements >= kDim) return;  // no barrier follows
    TileC sums[2] = {};
    AddValues(block, at, memory, values, factors, sums);
    Finish(block, a.attention, at,
           {factors.max, Sum(block, memory, factors), 0}, sums);
  }

  static SLUICE_DEVICE Place PlaceOf(const Block& block, const Args& a) {
    const AttentionQueries& queries = a.attention.queries;
    Place at;
    const auto index = static_cast<uint32_t>(block.index());
    const auto pieces = static_cast<uint32_t>(a.attention.memory.max_chunks);
    const auto runs = static_cast<uint32_t>(a.cut.num_runs);
    at.chunk = index % pieces;
    at.token = index / pieces / runs;
    at.run = a.cut.runs[index / pieces % runs];
    const int64_t offset = queries.table_offsets[at.token];
    at.seen = SeenOf(a.attention, at.token, at.chunk);
    const int32_t* const table =
        queries.block_tables + offset + at.chunk * kPieceSteps;
    const int own = ComputedHere(queries.positions[at.token]) -
                    static_cast<int>(at.chunk) * kAttentionChunk;
    const bool stores = a.rope.table.cos != nullptr && own < kAttentionChunk;
    at.own = stores ? own : -1;
    at.kv = FixedView<kDim>(a.attention.kv);
    at.page = (HasPage(block, at) ? table[block.lane()] : 0) *
                  static_cast<int32_t>(at.kv.num_kv_heads) +
              at.run.kv_head;
    return at;
  }
  static SLUICE_DEVICE bool HasPage(const Block& block, const Place& at) {
    return block.lane() < kPieceSteps && at.HasStep(block.lane());
  }

  // Sets the queries once inputs are there; stores the token's key and value if
  // the piece has its position, and loads them.
  static SLUICE_DEVICE void TakeRow(Block& block, const Args& a,
                                    const Place& at, const Memory& memory,
                                    Keys& keys, Values& values) {
    const AttentionQueries& queries = a.attention.queries;
    if (block.warp() == 0 && HasPage(block, at)) {
      Reader::PrefetchValues(block, at.kv, at.page);
    }
    block.WaitForInputs();
    const bool stores = at.own >= 0;
    const int32_t page =
        block.Shuffle(at.page, stores ? at.own / kStepPositions : 0);
    const typename Own::Token token = {
        queries.q.data + at.token * queries.q.stride,
        queries.positions[at.token],
        at.run,
        stores,
        {&at.kv, page, at.own % kStepPositions}};
    Own::Set(block, a, token, memory.own, memory.q);
    if (!stores) return;
    block.Sync();
    Own::Finish(block, token, memory.own);
    Place own = at;
    own.seen.begin = at.own;
    LoadKeys(block, own, keys);
    LoadValues(block, own, {0, kEarlySteps}, values);
  }

  static SLUICE_DEVICE void LoadKeys(Block& block, const Place& at,
                                     Keys& keys) {
    const int g = block.lane() / 4;
    SLUICE_UNROLL
    for (int s = 0; s < kWarpSteps; ++s) {
      const int step = block.warp() * kWarpSteps + s;
      const int32_t head_page = block.Shuffle(at.page, step);
      for (int i = 0; i < 2; ++i) {
        const int place = g / 2 * 4 + i * 2 + g % 2;
        if (!at.seen.Has(step * kStepPositions + place)) continue;
        for (int b = 0; b < kBlocks; ++b) {
          keys[s][i][b] = Reader::KeyChunk({&at.kv, head_page, place},
                                           b * 32 + block.lane() % 4 * 8);
        }
      }
    }
  }
  static SLUICE_DEVICE void LoadValues(Block& block, const Place& at,
                                       Steps steps, Values& values) {
    const int d = block.warp() * kWarpElements + block.lane() / 4 * 2;
    if (block.warp() * kWarpElements >= kDim) return;
    SLUICE_UNROLL
    for (int step = steps.begin; step < steps.end; ++step) {
      if (!at.HasStep(step)) continue;
      const int32_t head_page = block.Shuffle(at.page, step);
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int place = block.lane() % 4 * 4 + i;
        if (at.seen.Has(step * kStepPositions + place)) {
          values[step][i] = Reader::Value({&at.kv, head_page, place}, d);
        }
      }
    }
  }
  // The thread's cell of the queries.
  static SLUICE_DEVICE Quad QueryOf(const Block& block,
                                    const AttentionQueries& queries,
                                    const Place& at) {
    const int n = block.lane() / 4;
    const int step = block.warp();
    const int d = step / 2 * 32 + block.lane() % 4 * 8 + step % 2 * 4;
    if (n >= at.run.count || step >= kDim / 16) return {};
    return FourAt(queries.q.data + at.token * queries.q.stride +
                  (at.run.first + n) * kDim + d);
  }

  static SLUICE_DEVICE void Score(Block& block, const Memory& memory,
                                  const Keys& keys,
                                  TileC (&scores)[kWarpSteps][2]) {
    for (int step = 0; step < kDim / 16; ++step) {
      const TileB q = memory.q.Get(step * kWarpLanes + block.lane());
      for (int n = 0; n < kWarpSteps * 2; ++n) {
        const TileA& chunk = keys[n / 2][n % 2][step / 2];
        const int half = step % 2 * 2;
        block.MultiplyTile({{q.words[0], 0, q.words[1], 0}},
                           {{chunk.words[half], chunk.words[half + 1]}},
                           scores[n / 2][n % 2]);
      }
    }
  }
  static SLUICE_DEVICE void KeepMaxima(Block& block, const Place& at,
                                       TileC (&scores)[kWarpSteps][2],
                                       const Memory& memory) {
    float max = -Infinity();
    for (int n = 0; n < kWarpSteps * 4; ++n) {
      const int j = (block.warp() * kWarpSteps + n / 4) * kStepPositions +
                    block.lane() % 4 * 4 + n % 4;
      float& score = scores[n / 4][n / 2 % 2].values[n % 2];
      score = at.seen.Has(j) ? score : -Infinity();
      max = Larger(score, max);
    }
    for (int mask = 1; mask <= 2; mask *= 2) {
      const float other = block.ShuffleXor(max, mask);
      max = Larger(other, max);
    }
    if (block.lane() % 4 == 0) {
      memory.maxima.Set(block.warp() * kMostHeads + block.lane() / 4, max);
    }
  }

  // The weights of the warp's positions.
  static SLUICE_DEVICE Factors Weigh(Block& block, const Memory& memory,
                                     const TileC (&scores)[kWarpSteps][2]) {
    constexpr int kLeafsWarps = kLeafWarps / kPieceLeaves;
    Factors factors;
    LeafChain chain = NoLeaves();
    float base = 0.0f;
    for (int leaf = 0; leaf < kPieceLeaves; ++leaf) {
      float max = -Infinity();
      for (int w = leaf * kLeafsWarps; w < (leaf + 1) * kLeafsWarps; ++w) {
        const float other =
            memory.maxima.Get(w * kMostHeads + block.lane() / 4);
        max = Larger(other, max);
      }
      factors.of_leaf[leaf] = chain.Take(max);
      base = leaf == block.warp() / kLeafsWarps ? chain.base : base;
    }
    factors.max = chain.max * kLogOf2;
    float sum = 0.0f;
    for (int s = 0; s < kWarpSteps; ++s) {
      TileB words;
      for (int i = 0; i < 2; ++i) {
        const float lower = PowerOf2(scores[s][i].values[0] - base);
        const float upper = PowerOf2(scores[s][i].values[1] - base);
        sum = sum + lower;
        sum = sum + upper;
        words.words[i] = PackPair(lower, upper);
      }
      const int step = block.warp() * kWarpSteps + s;
      memory.weights.Set(step * kWarpLanes + block.lane(), words);
    }
    memory.sums.Set(block.warp() * kWarpLanes + block.lane(), sum);
    return factors;
  }

  static SLUICE_DEVICE void AddValues(Block& block, const Place& at,
                                      const Memory& memory,
                                      const Values& values,
                                      const Factors& factors,
                                      TileC (&sums)[2]) {
    SLUICE_UNROLL
    for (int leaf = 0; leaf < kPieceLeaves; ++leaf) {
      SLUICE_UNROLL
      for (int n = 0; n < 4; ++n) {
        float& sum = sums[n / 2].values[n % 2];
        sum = Fma(sum, factors.of_leaf[leaf], -0.0f);
      }
      const int first = leaf * kLeafSteps;
      if (!at.seen.Meets(first * kStepPositions,
                         (first + kLeafSteps) * kStepPositions)) {
        continue;
      }
      SLUICE_UNROLL
      for (int step = first; step < first + kLeafSteps; ++step) {
        const TileB w = memory.weights.Get(step * kWarpLanes + block.lane());
        const TileA weights = {{w.words[0], 0, w.words[1], 0}};
        const uint32_t(&v)[4] = values[step];
        block.MultiplyTile(weights,
                           {{LowerHalves(v[0], v[1]), LowerHalves(v[2], v[3])}},
                           sums[0]);
        block.MultiplyTile(weights,
                           {{UpperHalves(v[0], v[1]), UpperHalves(v[2], v[3])}},
                           sums[1]);
      }
    }
  }
  static SLUICE_DEVICE float Sum(Block& block, const Memory& memory,
                                 const Factors& factors) {
    float sum = 0.0f;
    for (int leaf = 0; leaf < kPieceLeaves; ++leaf) {
      const int at = leaf * 2 * kWarpLanes + block.lane();
      sum = Fma(sum, factors.of_leaf[leaf],
                memory.sums.Get(at) + memory.sums.Get(at + kWarpLanes));
    }
    sum = sum + block.ShuffleXor(sum, 1);
    return sum + block.ShuffleXor(sum, 2);
  }

  // Writes the piece's partial, or the output if there is no other piece.
  static SLUICE_DEVICE void Finish(Block& block, const AttentionArgs& a,
                                   const Place& at, const Partial& piece,
                                   const TileC (&sums)[2]) {
    const int g = block.lane() / 4;
    if (g >= at.run.count) return;
    const int64_t head = at.run.first + g;
    const int d = block.warp() * kWarpElements + block.lane() % 4 * 4;
    const Quad own = {{sums[0].values[0], sums[1].values[0], sums[0].values[1],
                       sums[1].values[1]}};
    if (a.memory.max_chunks == 1) {
      SetFour(a.out.data + at.token * a.out.stride + head * kDim + d,
              SunkOf(a, head, piece.max, piece.sum).OutputOf(own));
      return;
    }
    float* const partial =
        PartialOf(a, at.token * a.queries.num_heads + head, at.chunk);
    if (d == 0) {
      partial[0] = piece.max;
      partial[1] = piece.sum;
    }
    for (int i = 0; i < 4; ++i) partial[2 + d + i] = own.values[i];
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_ATTENTION_DECODE_H_
