#ifndef SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_PROMPT_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_PROMPT_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/canonical/attention_pages.h"
#include "kernels/cuda/shared/attention_partials.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// Attention of prompts over keys and values of a plain type, heads of kDim
// elements: a block per 32 tokens, head and chunk. Tokens of one sequence that
// follow each other read keys and values together, 32 positions at a time: a
// thread has two tokens' scores of four keys, then sums 4 or 8 elements of four
// tokens, all in the order of the canonical sums.
template <WeightType kType, int kDim>
struct PromptKernel {
  using Elements = KvElements<kType>;
  using Stored = typename Elements::Stored;
  static constexpr int kThreads = 128;
  static constexpr int kLeastBlocks = 3;
  static constexpr int kTokens = kWarpLanes;  // a lane has one's range
  static constexpr int kTile = 32;            // positions
  static constexpr int kLoad = Elements::kLoad;
  // Rows four words apart in the banks: eight of them are read at once.
  static constexpr int kStride = kDim + 4;
  static constexpr int kScoreStride = kAttentionChunk + 4;
  // A thread's share of scores, and of outputs: quads of elements.
  static constexpr int kOwnTokens = 2;
  static constexpr int kOwnKeys = 4;
  static constexpr int kSumTokens = 4;
  static constexpr int kQuads = kDim / 64;
  using Args = AttentionArgs;
  static constexpr size_t kSharedBytes =
      4 * ((kTokens + kTile) * kStride + kTokens * kScoreStride + 4 * kTokens +
           kChunkPages);

  struct Memory {
    Shared<float> queries;  // [kTokens, kStride]
    Shared<float> rows;     // [kTile, kStride]: keys, then values
    Shared<float> scores;   // [kTokens, kScoreStride]; then weights
    Shared<float> max;      // [kTokens]
    Shared<float> sum;
    Shared<int32_t> begin;  // what is seen of the chunk
    Shared<int32_t> end;
    Shared<int32_t> pages;
  };
  // Tokens of a sequence, of which any sees [low, high) of the chunk, and every
  // one that sees some of it [from, to).
  struct Range {
    int begin;  // of the block's tokens
    int count;
    int low;
    int high;
    int from;
    int to;
  };
  struct Place {
    int32_t first_token;
    int32_t tokens;
    int32_t head;
    int32_t chunk;
  };

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto chunks = static_cast<uint32_t>(a.memory.max_chunks);
    const auto heads = static_cast<uint32_t>(a.queries.num_heads);
    Place at;
    at.chunk = static_cast<int32_t>(index % chunks);
    at.head = static_cast<int32_t>(index / chunks % heads);
    at.first_token = static_cast<int32_t>(index / chunks / heads) * kTokens;
    const int64_t left = a.queries.q.rows - at.first_token;
    at.tokens = static_cast<int>(left < kTokens ? left : kTokens);
    // A lane has what a token sees of the chunk.
    const int lane = block.lane() < at.tokens ? block.lane() : at.tokens - 1;
    const SeenOfChunk seen = ChunkSeenBy(a, at.first_token + lane,
                                         int64_t{at.chunk} * kAttentionChunk);
    if (block.Ballot(seen.begin < seen.end) == 0) return;  // the whole block
    const Memory memory = {block.Allocate<float>(kTokens * kStride),
                           block.Allocate<float>(kTile * kStride),
                           block.Allocate<float>(kTokens * kScoreStride),
                           block.Allocate<float>(kTokens),
                           block.Allocate<float>(kTokens),
                           block.Allocate<int32_t>(kTokens),
                           block.Allocate<int32_t>(kTokens),
                           block.Allocate<int32_t>(kChunkPages)};
    CopyQueries(block, a, at, memory);
    if (block.warp() == 0) {
      memory.begin.Set(block.lane(), seen.begin);
      memory.end.Set(block.lane(), seen.end);
    }
    block.Sync();
    for (int begin = 0; begin < at.tokens;) {
      const Range range = RangeOf(block, a, at, begin, memory);
      if (range.low < range.high) Attend(block, a, at, range, memory);
      begin += range.count;
    }
  }

  static SLUICE_DEVICE void CopyQueries(Block& block, const Args& a,
                                        const Place& at, const Memory& memory) {
    constexpr int kPieces = kDim / 4;
    for (int i = block.thread(); i < kTokens * kPieces; i += kThreads) {
      const int row = i / kPieces;
      const int64_t token =
          at.first_token + (row < at.tokens ? row : at.tokens - 1);
      const int d = i % kPieces * 4;
      block.CopyAsync(
          memory.queries, row * kStride + d,
          a.queries.q.data + token * a.queries.q.stride + at.head * kDim + d);
    }
  }

  // The run of one sequence's tokens from token `begin` of the block on, and
  // what they see. A lane has a token.
  static SLUICE_DEVICE Range RangeOf(Block& block, const Args& a,
                                     const Place& at, int begin,
                                     const Memory& memory) {
    const int lane = block.lane();
    const int64_t* const sequences = a.queries.table_offsets + at.first_token;
    const bool is_same = lane >= begin && lane < at.tokens &&
                         sequences[lane] == sequences[begin];
    const uint32_t same = block.Ballot(is_same) >> begin;
    Range range;
    range.begin = begin;
    range.count = CountBits(same & ~(same + 1));
    const SeenOfChunk seen = {memory.begin.Get(lane), memory.end.Get(lane)};
    const bool sees =
        seen.begin < seen.end && lane >= begin && lane < begin + range.count;
    range.low = Least(block, sees ? seen.begin : kAttentionChunk);
    range.high = -Least(block, sees ? -seen.end : 0);
    range.from = -Least(block, sees ? -seen.begin : 0);
    range.to = Least(block, sees ? seen.end : kAttentionChunk);
    return range;
  }

  // Attention of a run.
  static SLUICE_DEVICE void Attend(Block& block, const Args& a, const Place& at,
                                   const Range& range, const Memory& memory) {
    block.Sync();  // the run before is done
    const int page = block.thread();
    if (page >= range.low / kPagePositions &&
        page <= (range.high - 1) / kPagePositions) {
      const int32_t* const table =
          a.queries.block_tables +
          a.queries.table_offsets[at.first_token + range.begin] +
          at.chunk * kChunkPages;
      memory.pages.Set(page,
                       table[page] * static_cast<int32_t>(a.kv.num_kv_heads) +
                           a.queries.kv_heads[at.head]);
    }
    block.Sync();
    const int first = range.low / kTile * kTile;
    SLUICE_ROLL
    for (int p = first; p < range.high; p += kTile) {
      LoadRows(block, a.kv.keys, range, p, memory);
      block.WaitCopies();
      block.Sync();
      Score(block, a.queries.scale, p, memory);
      block.Sync();
    }
    LoadRows(block, a.kv.values, range, first, memory);
    Weigh(block, first, range.high, memory);
    float sums[kSumTokens][4 * kQuads] = {};
    SLUICE_ROLL
    for (int p = first; p < range.high; p += kTile) {
      block.WaitCopies();
      block.Sync();
      SumRows(block, range, p, memory, sums);
      block.Sync();
      if (p + kTile < range.high) {
        LoadRows(block, a.kv.values, range, p + kTile, memory);
      }
    }
    Store(block, a, at, range, memory, sums);
  }

  // Keys or values of positions [p, p + kTile) of the chunk, widened. The
  // nearest one that is seen stands for another.
  static SLUICE_DEVICE void LoadRows(Block& block, const void* base,
                                     const Range& range, int p,
                                     const Memory& memory) {
    constexpr int kPieces = kDim / kLoad;
    const auto* const stored = static_cast<const Stored*>(base);
    const int thread = ComputedHere(block.thread());
    SLUICE_UNROLL
    for (int n = 0; n < kTile * kPieces / kThreads; ++n) {
      const int i = thread + n * kThreads;
      // Widened rows are stored eight at once, each in banks of its own.
      const bool copies = kLoad == 4;
      const int row = copies ? i / kPieces : i / (8 * kPieces) * 8 + i % 8;
      const int d = (copies ? i % kPieces : i / 8 % kPieces) * kLoad;
      int j = p + row;
      j = j < range.low ? range.low : j;
      j = j < range.high ? j : range.high - 1;
      const Stored* const from = stored + HeadAt<kDim>(memory.pages, j) + d;
      if constexpr (kLoad == 4) {
        block.CopyAsync(memory.rows, row * kStride + d, from);
      } else {
        float wide[kLoad];
        Elements::Widen(LoadQuad(reinterpret_cast<const float*>(from)), wide);
        SLUICE_UNROLL
        for (int w = 0; w < kLoad; w += 4) {
          StoreQuad(memory.rows, row * kStride + d + w,
                    {{wide[w], wide[w + 1], wide[w + 2], wide[w + 3]}});
        }
      }
    }
  }

  using Lanes = float[kOwnTokens][kOwnKeys][4];
  // Lanes l to l + 3 of the canonical dot product, of all of a thread's pairs.
  static SLUICE_DEVICE void SumOwnLanes(const Memory& memory, int token,
                                        int key, int l, Lanes& sums) {
    SLUICE_UNROLL
    for (int i = 0; i < kOwnTokens * kOwnKeys * 4; ++i) {
      sums[i / 4 / kOwnKeys][i / 4 % kOwnKeys][i % 4] = 0.0f;
    }
    SLUICE_ROLL
    for (int d = l; d < kDim; d += 16) {
      Quad queries[kOwnTokens];
      SLUICE_UNROLL
      for (int t = 0; t < kOwnTokens; ++t) {
        queries[t] = LoadQuad(memory.queries, token + t * 16 * kStride + d);
      }
      SLUICE_UNROLL
      for (int k = 0; k < kOwnKeys; ++k) {
        const Quad keys = LoadQuad(memory.rows, key + k * 8 * kStride + d);
        SLUICE_UNROLL
        for (int i = 0; i < kOwnTokens * 4; ++i) {
          float& sum = sums[i / 4][k][i % 4];
          sum = Fma(keys.values[i % 4], queries[i / 4].values[i % 4], sum);
        }
      }
    }
  }
  // Lanes l to l + 3, each with the one eight behind it.
  static SLUICE_DEVICE void SumPairs(const Memory& memory, int token, int key,
                                     int l, Lanes& pairs) {
    Lanes right;
    SumOwnLanes(memory, token, key, l, pairs);
    SumOwnLanes(memory, token, key, l + 8, right);
    SLUICE_UNROLL
    for (int i = 0; i < kOwnTokens * kOwnKeys * 4; ++i) {
      float& sum = pairs[i / 4 / kOwnKeys][i / 4 % kOwnKeys][i % 4];
      sum = sum + right[i / 4 / kOwnKeys][i / 4 % kOwnKeys][i % 4];
    }
  }
  // Scores of all tokens and positions [p, p + kTile); -inf where a token does
  // not see one.
  static SLUICE_DEVICE void Score(const Block& block, float scale, int p,
                                  const Memory& memory) {
    const int thread = ComputedHere(block.thread());
    const int own_token = thread / 8;
    const int own_key = thread % 8;
    const int token = own_token * kStride;
    const int key = own_key * kStride;
    Lanes lanes;
    Lanes upper;
    SumPairs(memory, token, key, 0, lanes);
    SumPairs(memory, token, key, 4, upper);
    SLUICE_UNROLL
    for (int t = 0; t < kOwnTokens; ++t) {
      const int row = own_token + t * 16;
      const int begin = memory.begin.Get(row);
      const int end = memory.end.Get(row);
      SLUICE_UNROLL
      for (int k = 0; k < kOwnKeys; ++k) {
        float four[4];
        SLUICE_UNROLL
        for (int i = 0; i < 4; ++i) four[i] = lanes[t][k][i] + upper[t][k][i];
        const float dot = (four[0] + four[2]) + (four[1] + four[3]);
        const int j = p + own_key + k * 8;
        memory.scores.Set(row * kScoreStride + j,
                          j >= begin && j < end ? dot * scale : -Infinity());
      }
    }
  }

  // Turns scores of [first, high) up to whole tiles into weights, and finds
  // their maxima and sums: half a warp has a token.
  static SLUICE_DEVICE void Weigh(Block& block, int first, int high,
                                  const Memory& memory) {
    const int padded = (high + kTile - 1) / kTile * kTile;
    SLUICE_ROLL
    for (int round = 0; round < kTokens; round += 8) {
      const int row = round + block.warp() + block.lane() / 16 * 4;
      const int at = row * kScoreStride;
      const int begin = first + block.lane() % 16;
      float max = -Infinity();
      for (int j = begin; j < padded; j += 16) {
        const float score = memory.scores.Get(at + j);
        max = score > max ? score : max;
      }
      for (int mask = 8; mask > 0; mask /= 2) {
        const float other = block.ShuffleXor(max, mask);
        max = other > max ? other : max;
      }
      float sum = 0.0f;
      for (int j = begin; j < padded; j += 16) {
        const float weight = Exp(memory.scores.Get(at + j) - max);
        memory.scores.Set(at + j, weight);
        sum = sum + weight;
      }
      sum = SumLanes(block, sum);
      if (block.lane() % 16 == 0) {
        memory.max.Set(row, max);
        memory.sum.Set(row, sum);
      }
    }
  }

  // The first of a thread's tokens and of its elements: others are eight tokens
  // and 64 elements behind.
  static SLUICE_DEVICE int TokenOf(const Block& block) {
    return block.thread() / 16;
  }
  static SLUICE_DEVICE int ElementOf(const Block& block) {
    return block.thread() % 16 * 4;
  }
  // Adds the values of positions [p, p + kTile) to the thread's sums.
  static SLUICE_DEVICE void SumRows(const Block& block, const Range& range,
                                    int p, const Memory& memory,
                                    float (&sums)[kSumTokens][4 * kQuads]) {
    const int token = TokenOf(block);
    const int d = ElementOf(block);
    SLUICE_ROLL
    for (int four = 0; four < kTile; four += 4) {
      const int j = p + four;
      const bool shared = j >= range.from && j + 4 <= range.to;
      Quad weights[kSumTokens];
      SLUICE_UNROLL
      for (int t = 0; t < kSumTokens; ++t) {
        weights[t] =
            LoadQuad(memory.scores, (token + t * 8) * kScoreStride + j);
      }
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        Quad values[kQuads];
        SLUICE_UNROLL
        for (int q = 0; q < kQuads; ++q) {
          values[q] = LoadQuad(memory.rows, (four + i) * kStride + d + q * 64);
        }
        SLUICE_UNROLL
        for (int t = 0; t < kSumTokens; ++t) {
          if (!shared && !Sees(memory, token + t * 8, j + i)) continue;
          SLUICE_UNROLL
          for (int e = 0; e < 4 * kQuads; ++e) {
            sums[t][e] = Fma(weights[t].values[i], values[e / 4].values[e % 4],
                             sums[t][e]);
          }
        }
      }
    }
  }
  static SLUICE_DEVICE bool Sees(const Memory& memory, int token, int j) {
    return j >= memory.begin.Get(token) && j < memory.end.Get(token);
  }

  // Stores the partials of the run's tokens.
  static SLUICE_DEVICE void Store(const Block& block, const Args& a,
                                  const Place& at, const Range& range,
                                  const Memory& memory,
                                  const float (&sums)[kSumTokens][4 * kQuads]) {
    SLUICE_UNROLL
    for (int t = 0; t < kSumTokens; ++t) {
      const int token = TokenOf(block) + t * 8;
      if (token < range.begin || token >= range.begin + range.count ||
          memory.begin.Get(token) >= memory.end.Get(token)) {
        continue;
      }
      float* const partial =
          PartialOf(a, (at.first_token + token) * a.queries.num_heads + at.head,
                    at.chunk);
      SLUICE_UNROLL
      for (int e = 0; e < 4 * kQuads; e += 2) {
        StoreHalfTile(partial + 2 + ElementOf(block) + e / 4 * 64 + e % 4,
                      {{BitCast<uint32_t>(sums[t][e]),
                        BitCast<uint32_t>(sums[t][e + 1])}});
      }
      if (ElementOf(block) == 0) {
        partial[0] = memory.max.Get(token);
        partial[1] = memory.sum.Get(token);
      }
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_PROMPT_H_
