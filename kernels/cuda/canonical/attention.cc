#include "kernels/cuda/canonical/attention.h"

#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/block_format.h"
#include "kernels/cuda/canonical/attention_decode.h"
#include "kernels/cuda/canonical/attention_prompt.h"
#include "kernels/cuda/shared/attention_partials.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {
namespace {

// A chunk as one token's head sees it.
struct ChunkPlace {
  int64_t token;
  int64_t head;
  int64_t kv_head;
  int64_t from;  // its first position
  int begin;     // what is seen of it, from there
  int end;
  const int32_t* table;
};

// Keys and values of a plain type.
template <WeightType kType>
struct PlainReader {
  static size_t SharedBytes(int64_t) { return 0; }
  SLUICE_DEVICE PlainReader(Block&, const AttentionArgs&, const ChunkPlace&) {}

  // The first element of a position's key or value.
  static SLUICE_DEVICE int64_t ElementOf(const AttentionArgs& a,
                                         const ChunkPlace& at, int j) {
    const int64_t position = at.from + j;
    const int64_t page = at.table[position / a.kv.block_tokens];
    return ((page * a.kv.num_kv_heads + at.kv_head) * a.kv.block_tokens +
            position % a.kv.block_tokens) *
           a.kv.head_dim;
  }
  // Scores of [begin / 16 * 16, padded); -inf where nothing is seen. Half a
  // warp finds one.
  static SLUICE_DEVICE void Score(Block& block, const AttentionArgs& a,
                                  const ChunkPlace& at, int padded,
                                  const Shared<float>& scores) {
    constexpr int kHalves = kAttentionThreads / 16;
    const float* q = a.queries.q.data + at.token * a.queries.q.stride +
                     at.head * a.kv.head_dim;
    for (int base = at.begin / 16 * 16; base < padded; base += kHalves) {
      const int j = base + block.thread() / 16;
      const bool seen = j >= at.begin && j < at.end;
      const int64_t key = seen ? ElementOf(a, at, j) : 0;
      float lane = 0.0f;
      for (int64_t d = block.lane() % 16; seen && d < a.kv.head_dim; d += 16) {
        lane = Fma(Element<kType>(a.kv.keys, key + d), q[d], lane);
      }
      const float dot = SumLanes(block, lane);
      if (block.lane() % 16 == 0) {
        scores.Set(j, seen ? dot * a.queries.scale : -Infinity());
      }
    }
  }
  static SLUICE_DEVICE float Value(const AttentionArgs& a, const ChunkPlace& at,
                                   int j, int64_t d) {
    return Element<kType>(a.kv.values, ElementOf(a, at, j) + d);
  }
};

// Keys and values in Q8_0: products with the head of q in eight bits.
struct Q8Reader {
  static constexpr int kWarps = kAttentionThreads / kWarpLanes;
  static constexpr int kPageBytes = 34 * kGroupRows;  // of 32 elements
  static size_t SharedBytes(int64_t head_dim) {
    const auto array = [](int64_t n) {
      return (static_cast<size_t>(n) * 4 + 15) / 16 * 16;
    };
    const int64_t blocks = head_dim / kShortBlock;
    return array(head_dim / 4) + 2 * array(blocks) + array(kWarps);
  }
  // Quantises the head. All threads call.
  SLUICE_DEVICE Q8Reader(Block& block, const AttentionArgs& a,
                         const ChunkPlace& at)
      : words(block.Allocate<uint32_t>(a.kv.head_dim / 4)),
        scales(block.Allocate<float>(a.kv.head_dim / kShortBlock)),
        sums(block.Allocate<int32_t>(a.kv.head_dim / kShortBlock)),
        finite(block.Allocate<int32_t>(kWarps)) {
    const float* q = a.queries.q.data + at.token * a.queries.q.stride +
                     at.head * a.kv.head_dim;
    bool whole = true;
    for (int64_t b = block.warp(); b < a.kv.head_dim / kShortBlock;
         b += kWarps) {
      const float own = q[b * kShortBlock + block.lane()];
      const EightBits bits = EightBitsOf(LargestOf(block, MagnitudeOf(own)));
      whole = whole && bits.finite;
      const int32_t code = bits.Code(own);
      uint32_t word = static_cast<uint32_t>(code & 255)
                      << (block.lane() % 4 * 8);
      word |= block.ShuffleXor(word, 1);
      word |= block.ShuffleXor(word, 2);
      int32_t sum = code;
      for (int mask = 16; mask > 0; mask /= 2) {
        sum += block.ShuffleXor(sum, mask);
      }
      if (block.lane() % 4 == 0) {
        words.Set(b * (kShortBlock / 4) + block.lane() / 4, word);
      }
      if (block.lane() == 0) {
        scales.Set(b, bits.scale);
        sums.Set(b, sum);
      }
    }
    if (block.lane() == 0) finite.Set(block.warp(), whole ? 1 : 0);
    block.Sync();
  }

  // The head's keys or values on the page of position j.
  static SLUICE_DEVICE const uint8_t* PageOf(const AttentionArgs& a,
                                             const ChunkPlace& at,
                                             const void* base, int j) {
    const int64_t page = at.table[(at.from + j) / kGroupRows];
    return static_cast<const uint8_t*>(base) +
           (page * a.kv.num_kv_heads + at.kv_head) *
               (a.kv.head_dim / kShortBlock * kPageBytes);
  }
  // As PlainReader's; a thread finds one.
  SLUICE_DEVICE void Score(Block& block, const AttentionArgs& a,
                           const ChunkPlace& at, int padded,
                           const Shared<float>& scores) const {
    bool whole = true;
    for (int w = 0; w < kWarps; ++w) whole = whole && finite.Get(w) != 0;
    for (int j = at.begin / 16 * 16 + block.thread(); j < padded;
         j += kAttentionThreads) {
      const bool seen = j >= at.begin && j < at.end;
      float score = -Infinity();
      if (seen) {
        const float dot = Dot(PageOf(a, at, a.kv.keys, j), j % kGroupRows,
                              a.kv.head_dim / kShortBlock);
        score = (whole ? dot : NotANumber()) * a.queries.scale;
      }
      scores.Set(j, score);
    }
  }
  SLUICE_DEVICE float Dot(const uint8_t* page, int place,
                          int64_t blocks) const {
    constexpr int kWords = kShortBlock / 4;
    float sum = 0.0f;
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* codes = page + b * kPageBytes + 2 * kGroupRows + 4 * place;
      int32_t part = 0;
      for (int i = 0; i < kWords; ++i) {
        part = DotBytes(part, LoadWord(codes + 4 * kGroupRows * i),
                        words.Get(b * kWords + i));
      }
      const float scale = HalfAt(page + b * kPageBytes + 2 * place);
      sum = Fma(static_cast<float>(part - 128 * sums.Get(b)),
                scale * scales.Get(b), sum);
    }
    return sum;
  }
  static SLUICE_DEVICE float Value(const AttentionArgs& a, const ChunkPlace& at,
                                   int j, int64_t d) {
    const uint8_t* page = PageOf(a, at, a.kv.values, j);
    const int64_t place = (at.from + j) % kGroupRows;
    const int64_t blocks = a.kv.head_dim / kShortBlock;
    const auto code = static_cast<int8_t>(page[place * a.kv.head_dim + d]);
    return static_cast<float>(code) *
           HalfAt(page + kGroupRows * a.kv.head_dim +
                  2 * (place * blocks + d / kShortBlock));
  }

  Shared<uint32_t> words;
  Shared<float> scales;
  Shared<int32_t> sums;
  Shared<int32_t> finite;  // of each warp's blocks
};

// A block per token, head and chunk: scores, their weights, then a thread sums
// the values of an element.
template <typename Reader>
struct ChunkKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr int kChunk = kAttentionChunk;
  using Args = AttentionArgs;
  static size_t SharedBytes(int64_t head_dim) {
    return sizeof(float) * (kChunk + 4) + Reader::SharedBytes(head_dim);
  }

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t chunk = block.index() % a.memory.max_chunks;
    const int64_t token_head = block.index() / a.memory.max_chunks;
    const int64_t token = token_head / a.queries.num_heads;
    const int64_t head = token_head % a.queries.num_heads;
    const Visible visible = VisibleOf(a, token);
    const int64_t from = chunk * kChunk;
    const int begin =
        static_cast<int>(visible.first > from ? visible.first - from : 0);
    const int64_t stop = visible.last + 1 - from;
    const int end = static_cast<int>(stop < kChunk ? stop : kChunk);
    if (begin >= end) return;  // the whole block
    const auto weights = block.Allocate<float>(kChunk);
    const auto shared = block.Allocate<float>(4);
    const ChunkPlace at = {
        token,
        head,
        a.queries.kv_heads[head],
        from,
        begin,
        end,
        a.queries.block_tables + a.queries.table_offsets[token]};
    const int padded = (end + 15) / 16 * 16;
    const Reader reader(block, a, at);
    reader.Score(block, a, at, padded, weights);
    block.Sync();
    if (block.warp() == 0) Weigh(block, weights, begin, padded, shared);
    block.Sync();
    float* partial = PartialOf(a, token_head, chunk);
    if (block.thread() < 2)
      partial[block.thread()] = shared.Get(block.thread());
    for (int64_t d = block.thread(); d < a.kv.head_dim; d += kThreads) {
      float sum = 0.0f;
      for (int j = begin; j < end; ++j) {
        sum = Fma(weights.Get(j), Reader::Value(a, at, j, d), sum);
      }
      partial[2 + d] = sum;
    }
  }

  // Turns scores of [begin / 16 * 16, padded) into weights; their maximum and
  // sum go to `shared`. A warp calls.
  static SLUICE_DEVICE void Weigh(Block& block, const Shared<float>& weights,
                                  int begin, int padded,
                                  const Shared<float>& shared) {
    const int from = begin / 16 * 16;
    float max = -Infinity();
    for (int j = from + block.lane(); j < padded; j += kWarpLanes) {
      const float score = weights.Get(j);
      max = score > max ? score : max;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = block.ShuffleXor(max, mask);
      max = other > max ? other : max;
    }
    block.SyncWarp();  // other lanes read the scores
    float sum = 0.0f;
    if (block.lane() < 16) {
      for (int j = from + block.lane(); j < padded; j += 16) {
        const float weight = Exp(weights.Get(j) - max);
        weights.Set(j, weight);
        sum = sum + weight;
      }
    }
    sum = SumLanes(block, sum);
    if (block.lane() == 0) {
      shared.Set(0, max);
      shared.Set(1, sum);
    }
  }
};

template <WeightType kType, int kDim>
void StartFixed(Stream stream, const AttentionArgs& args) {
  const int64_t tokens = args.out.rows;
  const int64_t heads = args.queries.num_heads;
  const int32_t chunks = args.memory.max_chunks;
  if (args.memory.in_runs != 0) {
    using Kernel = PromptKernel<kType, kDim>;
    const int64_t tiles = (tokens + Kernel::kTokens - 1) / Kernel::kTokens;
    Launch<Kernel>(stream, tiles * heads * chunks, Kernel::kSharedBytes, args);
  } else {
    using Kernel = TokenKernel<kType, kDim>;
    Launch<Kernel>(stream, tokens * heads * chunks, Kernel::kSharedBytes, args);
    // Where there is one chunk, the kernel writes the output.
    if (chunks == 1) return;
  }
  Launch<JoinKernel>(stream, tokens * heads, 0, args);
}

template <typename Reader>
void StartChunks(Stream stream, const AttentionArgs& args) {
  using Kernel = ChunkKernel<Reader>;
  const int64_t units = args.out.rows * args.queries.num_heads;
  Launch<Kernel>(stream, units * args.memory.max_chunks,
                 Kernel::SharedBytes(args.kv.head_dim), args);
  Launch<JoinKernel>(stream, units, 0, args);
}

// Heads of 64 and 128 elements have kernels of their own, with the same bits,
// where sixteen bytes can be read at once and they are asked for.
template <WeightType kType>
void StartPlain(Stream stream, const AttentionArgs& args) {
  const KvView& kv = args.kv;
  const ConstMatrix& q = args.queries.q;
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  const bool fits = LimitsOf(stream).asked.Has(Unconfirmed::kHeadAttention) &&
                    is_aligned(q.data) && q.stride % 4 == 0 &&
                    is_aligned(kv.keys) && is_aligned(kv.values) &&
                    kv.block_tokens == kPagePositions;
  if (fits && kv.head_dim == 128) {
    return StartFixed<kType, 128>(stream, args);
  }
  if (fits && kv.head_dim == 64) return StartFixed<kType, 64>(stream, args);
  StartChunks<PlainReader<kType>>(stream, args);
}

}  // namespace

void PagedAttention(Stream stream, const AttentionQueries& queries,
                    const KvView& kv, const AttentionMemory& memory,
                    Matrix out) {
  SLUICE_CHECK(queries.q.cols == queries.num_heads * kv.head_dim);
  SLUICE_CHECK(out.rows == queries.q.rows && out.cols == queries.q.cols);
  SLUICE_CHECK(kv.block_tokens > 0 && kAttentionChunk % kv.block_tokens == 0);
  SLUICE_CHECK(memory.max_chunks > 0 &&
               memory.max_chunks < 1 << (kMostLevels - 1));
  const AttentionArgs args = {queries, kv, memory, out};
  switch (kv.type) {
    case WeightType::kF32:
      return StartPlain<WeightType::kF32>(stream, args);
    case WeightType::kBf16:
      return StartPlain<WeightType::kBf16>(stream, args);
    default:
      SLUICE_CHECK(kv.type == WeightType::kQ8_0);
      SLUICE_CHECK(kv.block_tokens == kGroupRows &&
                   kv.head_dim % kShortBlock == 0);
      StartChunks<Q8Reader>(stream, args);
  }
}

}  // namespace sluice::kernels::cuda
