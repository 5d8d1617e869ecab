#ifndef SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_DECODE_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_DECODE_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/canonical/attention_pages.h"
#include "kernels/cuda/shared/attention_partials.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// Attention of a few tokens over keys and values of a plain type, heads of kDim
// elements: a block per token, head and chunk. A few threads have a key, each
// of them so many of the canonical dot product's lanes as sixteen bytes hold;
// values are on their way meanwhile, and then a thread sums an element's.
template <WeightType kType, int kDim>
struct TokenKernel {
  using Elements = KvElements<kType>;
  using Stored = typename Elements::Stored;
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / kWarpLanes;
  static constexpr int kLeastBlocks = 2;
  static constexpr bool kWaitsItself = true;
  static constexpr int kLoad = Elements::kLoad;
  static constexpr int kKeyThreads = 16 / kLoad;  // of a key
  static constexpr int kKeys = kThreads / kKeyThreads;
  static constexpr int kLoads = kDim / 16;
  // Values of so many positions arrive together, two such tiles at once.
  static constexpr int kTile = 64;
  static constexpr int kTiles = 2;
  static constexpr int kRowPieces = kDim / kLoad;
  using Args = AttentionArgs;
  static constexpr size_t kSharedBytes = sizeof(float) * (kAttentionChunk + 4) +
                                         sizeof(int32_t) * kChunkPages +
                                         sizeof(Stored) * kTiles * kTile * kDim;

  struct Memory {
    Shared<float> weights;  // of the chunk; scores before
    Shared<float> totals;   // maximum, sum
    Shared<int32_t> pages;
    Shared<Stored> values;  // [kTiles, kTile, kDim]
  };

  struct Cell {
    int64_t token;
    int64_t head;
    int64_t chunk;
  };

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto chunks = static_cast<uint32_t>(a.memory.max_chunks);
    const auto heads = static_cast<uint32_t>(a.queries.num_heads);
    const uint32_t token_head = index / chunks;
    const Cell cell = {token_head / heads, token_head % heads, index % chunks};
    const SeenOfChunk seen =
        ChunkSeenBy(a, cell.token, cell.chunk * kAttentionChunk);
    const Memory memory = {block.Allocate<float>(kAttentionChunk),
                           block.Allocate<float>(4),
                           block.Allocate<int32_t>(kChunkPages),
                           block.Allocate<Stored>(kTiles * kTile * kDim)};
    // The step's lists are there before its first kernel; queries and keys are
    // not.
    if (seen.begin < seen.end) {
      FindPages(block, a, cell, seen, memory);
    }
    block.WaitForInputs();
    if (seen.begin >= seen.end) return;  // the whole block
    block.Sync();
    const int first = seen.begin / kTile;
    CopyValues(block, a, seen, memory, first);
    CopyValues(block, a, seen, memory, first + 1);
    Score(block, a,
          a.queries.q.data + cell.token * a.queries.q.stride + cell.head * kDim,
          seen, memory);
    block.Sync();
    Weigh(block, seen, memory);
    const float element = SumValues(block, a, seen, memory);
    Store(block, a, cell, memory, element);
  }

  // Keeps where the chunk's pages are, and asks for them.
  static SLUICE_DEVICE void FindPages(Block& block, const Args& a,
                                      const Cell& cell, const SeenOfChunk& seen,
                                      const Memory& memory) {
    const int page = block.thread();
    if (page < seen.begin / kPagePositions ||
        page > (seen.end - 1) / kPagePositions) {
      return;
    }
    const int32_t* const table = a.queries.block_tables +
                                 a.queries.table_offsets[cell.token] +
                                 cell.chunk * kChunkPages;
    const int32_t own = table[page] * static_cast<int32_t>(a.kv.num_kv_heads) +
                        a.queries.kv_heads[cell.head];
    memory.pages.Set(page, own);
    constexpr int kElements = kPagePositions * kDim;
    constexpr int kBytes = kElements * static_cast<int>(sizeof(Stored));
    block.Prefetch(KeysOf(a) + int64_t{own} * kElements, kBytes);
    block.Prefetch(ValuesOf(a) + int64_t{own} * kElements, kBytes);
  }
  static SLUICE_DEVICE const Stored* KeysOf(const Args& a) {
    return static_cast<const Stored*>(a.kv.keys);
  }
  static SLUICE_DEVICE const Stored* ValuesOf(const Args& a) {
    return static_cast<const Stored*>(a.kv.values);
  }

  // Copies what is seen of tile `tile` of the values, which is one group.
  static SLUICE_DEVICE void CopyValues(Block& block, const Args& a,
                                       const SeenOfChunk& seen,
                                       const Memory& memory, int tile) {
    for (int i = block.thread(); i < kTile * kRowPieces; i += kThreads) {
      const int row = i / kRowPieces;
      const int j = tile * kTile + row;
      if (j < seen.begin || j >= seen.end) continue;
      const int at = i % kRowPieces * kLoad;
      block.CopyAsync(memory.values, (tile % kTiles * kTile + row) * kDim + at,
                      ValuesOf(a) + HeadAt<kDim>(memory.pages, j) + at);
    }
    block.CommitCopies();
  }

  // Scores of [begin / 16 * 16, end) up to whole sixteen; -inf where nothing is
  // seen.
  static SLUICE_DEVICE void Score(Block& block, const Args& a, const float* q,
                                  const SeenOfChunk& seen,
                                  const Memory& memory) {
    const int part = block.thread() % kKeyThreads * kLoad;
    float query[kLoads][kLoad];
    SLUICE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      SLUICE_UNROLL
      for (int w = 0; w < kLoad / 4; ++w) {
        const Quad quad = LoadQuad(q + 16 * i + part + 4 * w);
        SLUICE_UNROLL
        for (int e = 0; e < 4; ++e) query[i][4 * w + e] = quad.values[e];
      }
    }
    const int padded = (seen.end + 15) / 16 * 16;
    SLUICE_ROLL
    for (int base = seen.begin / 16 * 16; base < padded; base += kKeys) {
      const int j = base + block.thread() / kKeyThreads;
      const bool is_seen = j >= seen.begin && j < seen.end;
      const float dot = Dot(block, a, memory, is_seen ? j : -1, query);
      if (part == 0 && j < padded) {
        memory.weights.Set(j, is_seen ? dot * a.queries.scale : -Infinity());
      }
    }
  }
  // The canonical dot product of key j with the query; of none if negative.
  static SLUICE_DEVICE float Dot(Block& block, const Args& a,
                                 const Memory& memory, int j,
                                 const float (&query)[kLoads][kLoad]) {
    Quad bits[kLoads] = {};
    if (j >= 0) {
      const auto* const key = reinterpret_cast<const float*>(
          KeysOf(a) + HeadAt<kDim>(memory.pages, j) +
          block.thread() % kKeyThreads * kLoad);
      SLUICE_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        bits[i] = LoadQuad(key + i * (16 * sizeof(Stored) / sizeof(float)));
      }
    }
    float lanes[kLoad] = {};
    SLUICE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      float elements[kLoad];
      Elements::Widen(bits[i], elements);
      SLUICE_UNROLL
      for (int e = 0; e < kLoad; ++e) {
        lanes[e] = Fma(elements[e], query[i][e], lanes[e]);
      }
    }
    // The sixteen lanes are joined as SumLanes does.
    SLUICE_UNROLL
    for (int mask = 8; mask >= kLoad; mask /= 2) {
      SLUICE_UNROLL
      for (int e = 0; e < kLoad; ++e) {
        lanes[e] = lanes[e] + block.ShuffleXor(lanes[e], mask / kLoad);
      }
    }
    SLUICE_UNROLL
    for (int half = kLoad / 2; half > 0; half /= 2) {
      SLUICE_UNROLL
      for (int e = 0; e < half; ++e) lanes[e] = lanes[e] + lanes[e + half];
    }
    return lanes[0];
  }

  // Turns scores into weights, and finds their maximum and sum, which the last
  // warp keeps: others sum values meanwhile.
  static SLUICE_DEVICE void Weigh(Block& block, const SeenOfChunk& seen,
                                  const Memory& memory) {
    const int from = seen.begin / 16 * 16;
    const int padded = (seen.end + 15) / 16 * 16;
    float max = -Infinity();
    for (int j = from + block.lane(); j < padded; j += kWarpLanes) {
      const float score = memory.weights.Get(j);
      max = score > max ? score : max;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = block.ShuffleXor(max, mask);
      max = other > max ? other : max;
    }
    block.Sync();  // all have seen the scores
    static_assert(kThreads >= kAttentionChunk);
    const int own = from + block.thread();
    if (own < padded) {
      memory.weights.Set(own, Exp(memory.weights.Get(own) - max));
    }
    block.Sync();
    if (block.warp() != kWarps - 1) return;
    float sum = 0.0f;
    for (int j = from + block.lane() % 16; j < padded; j += 16) {
      sum = sum + memory.weights.Get(j);
    }
    sum = SumLanes(block, sum);
    if (block.lane() == 0) {
      memory.totals.Set(0, max);
      memory.totals.Set(1, sum);
    }
  }

  // The sum of the thread's element of the values, if it has one.
  static SLUICE_DEVICE float SumValues(Block& block, const Args& a,
                                       const SeenOfChunk& seen,
                                       const Memory& memory) {
    static_assert(kThreads >= kDim + kWarpLanes);
    float sum = 0.0f;
    for (int tile = seen.begin / kTile; tile * kTile < seen.end; ++tile) {
      block.template WaitCopies<kTiles - 1>();
      block.Sync();
      if (block.thread() < kDim) {
        const int begin = tile * kTile;
        const int from = seen.begin > begin ? seen.begin : begin;
        const int stop = begin + kTile;
        sum = SumTile(memory, from, seen.end < stop ? seen.end : stop,
                      block.thread(), sum);
      }
      block.Sync();
      CopyValues(block, a, seen, memory, tile + kTiles);
    }
    block.Sync();
    return sum;
  }
  // Adds positions [j, end) of a tile.
  static SLUICE_DEVICE float SumTile(const Memory& memory, int j, int end,
                                     int d, float sum) {
    constexpr int kAtOnce = 8;
    const auto value = [&](int at) {
      return WidenElement(memory.values.Get(at % (kTiles * kTile) * kDim + d));
    };
    for (; j + kAtOnce <= end; j += kAtOnce) {
      float weights[kAtOnce];
      float values[kAtOnce];
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        weights[i] = memory.weights.Get(j + i);
        values[i] = value(j + i);
      }
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sum = Fma(weights[i], values[i], sum);
    }
    for (; j < end; ++j) sum = Fma(memory.weights.Get(j), value(j), sum);
    return sum;
  }

  // Stores the chunk's partial, or the output where there is one chunk.
  static SLUICE_DEVICE void Store(const Block& block, const Args& a,
                                  const Cell& cell, const Memory& memory,
                                  float element) {
    const int d = block.thread();
    if (a.memory.max_chunks == 1) {
      if (d >= kDim) return;
      Partial all = {memory.totals.Get(0), memory.totals.Get(1), element};
      if (a.queries.sinks != nullptr) {
        all = Joined(all, {a.queries.sinks[cell.head], 1.0f, 0.0f});
      }
      a.out.data[cell.token * a.out.stride + cell.head * kDim + d] =
          all.element / all.sum;
      return;
    }
    float* const partial =
        PartialOf(a, cell.token * a.queries.num_heads + cell.head, cell.chunk);
    if (d < kDim) partial[2 + d] = element;
    if (d < 2) partial[d] = memory.totals.Get(d);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_DECODE_H_
