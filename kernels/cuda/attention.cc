#include "kernels/cuda/attention.h"

#include "common/base/check.h"
#include "kernels/cuda/math.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kAttentionThreads = 128;
constexpr int kMostLevels = 24;

struct AttentionArgs {
  AttentionQueries queries;
  KvView kv;
  AttentionMemory memory;
  Matrix out;
};

// What a token sees.
struct Visible {
  int64_t first;
  int64_t last;
};
SLUICE_DEVICE Visible VisibleOf(const AttentionArgs& a, int64_t token) {
  const int64_t last = a.queries.positions[token];
  const int64_t first = last - a.queries.window + 1;
  return {a.queries.window > 0 && first > 0 ? first : 0, last};
}

// Where a chunk's partial stands: maximum, sum, accumulator.
SLUICE_DEVICE float* PartialOf(const AttentionArgs& a, int64_t token_head,
                               int64_t chunk) {
  return a.memory.floats +
         (token_head * a.memory.max_chunks + chunk) * (a.kv.head_dim + 2);
}

// A block per token, head and chunk. Half a warp finds a score, a thread sums
// the values of an element.
template <WeightType kType>
struct ChunkKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr int kChunk = kAttentionChunk;
  static constexpr int kHalves = kThreads / 16;
  static constexpr size_t kSharedBytes = sizeof(float) * (kChunk + 4);
  using Args = AttentionArgs;

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
    const int32_t* table =
        a.queries.block_tables + a.queries.table_offsets[token];
    const int64_t kv_head = a.queries.kv_heads[head];
    // The first element of a position's key or value.
    const auto element = [&](int j) {
      const int64_t position = from + j;
      const int64_t at = table[position / a.kv.block_tokens];
      return ((at * a.kv.num_kv_heads + kv_head) * a.kv.block_tokens +
              position % a.kv.block_tokens) *
             a.kv.head_dim;
    };
    const float* q =
        a.queries.q.data + token * a.queries.q.stride + head * a.kv.head_dim;
    const int padded = (end + 15) / 16 * 16;
    for (int base = begin / 16 * 16; base < padded; base += kHalves) {
      const int j = base + block.thread() / 16;
      const bool seen = j >= begin && j < end;
      const int64_t key = seen ? element(j) : 0;
      float lane = 0.0f;
      for (int64_t d = block.lane() % 16; seen && d < a.kv.head_dim; d += 16) {
        lane = Fma(Element<kType>(a.kv.keys, key + d), q[d], lane);
      }
      const float dot = SumLanes(block, lane);
      if (block.lane() % 16 == 0) {
        weights.Set(j, seen ? dot * a.queries.scale : -Infinity());
      }
    }
    block.Sync();
    if (block.warp() == 0) Weigh(block, weights, begin, padded, shared);
    block.Sync();
    float* partial = PartialOf(a, token_head, chunk);
    if (block.thread() < 2)
      partial[block.thread()] = shared.Get(block.thread());
    for (int64_t d = block.thread(); d < a.kv.head_dim; d += kThreads) {
      float sum = 0.0f;
      for (int j = begin; j < end; ++j) {
        sum = Fma(weights.Get(j), Element<kType>(a.kv.values, element(j) + d),
                  sum);
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

// A partial's maximum, sum and one element of its accumulator.
struct Partial {
  float max;
  float sum;
  float element;
};
SLUICE_DEVICE Partial Joined(const Partial& a, const Partial& b) {
  const float max = a.max < b.max ? b.max : a.max;
  const float ea = Exp(a.max - max);
  const float eb = Exp(b.max - max);
  return {max, Fma(b.sum, eb, a.sum * ea), Fma(b.element, eb, a.element * ea)};
}

// A block per token and head, a thread per element: each walks the tree over
// the chunks by itself.
struct JoinKernel {
  static constexpr int kThreads = kAttentionThreads;
  using Args = AttentionArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t token = block.index() / a.queries.num_heads;
    const int64_t head = block.index() % a.queries.num_heads;
    float* out = a.out.data + token * a.out.stride + head * a.kv.head_dim;
    for (int64_t d = block.thread(); d < a.kv.head_dim; d += kThreads) {
      Partial all = Root(a, block.index(), token, d);
      if (a.queries.sinks != nullptr) {
        all = Joined(all, {a.queries.sinks[head], 1.0f, 0.0f});
      }
      out[d] = all.element / all.sum;
    }
  }

  static SLUICE_DEVICE Partial Root(const Args& a, int64_t token_head,
                                    int64_t token, int64_t d) {
    const Visible visible = VisibleOf(a, token);
    const auto end = static_cast<int32_t>(visible.last / kAttentionChunk + 1);
    Partial levels[kMostLevels];
    uint32_t pending = 0;  // bit n: level n holds a finished node
    for (auto c = static_cast<int32_t>(visible.first / kAttentionChunk);
         c < end; ++c) {
      const float* from = PartialOf(a, token_head, c);
      Partial node = {from[0], from[1], from[2 + d]};
      int level = 0;
      for (; (c >> level & 1) != 0; ++level) {
        if ((pending >> level & 1) == 0) continue;  // the sibling is masked
        node = Joined(levels[level], node);
        pending &= ~(1u << level);
      }
      levels[level] = node;
      pending |= 1u << level;
    }
    // What is left, the youngest nodes first.
    int level = 0;
    while ((pending >> level & 1) == 0) ++level;
    Partial all = levels[level];
    for (++level; level < kMostLevels; ++level) {
      if ((pending >> level & 1) != 0) all = Joined(levels[level], all);
    }
    return all;
  }
};

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
  const int64_t units = out.rows * queries.num_heads;
  if (kv.type == WeightType::kF32) {
    using Kernel = ChunkKernel<WeightType::kF32>;
    Launch<Kernel>(stream, units * memory.max_chunks, Kernel::kSharedBytes,
                   args);
  } else {
    SLUICE_CHECK(kv.type == WeightType::kBf16);
    using Kernel = ChunkKernel<WeightType::kBf16>;
    Launch<Kernel>(stream, units * memory.max_chunks, Kernel::kSharedBytes,
                   args);
  }
  Launch<JoinKernel>(stream, units, 0, args);
}

}  // namespace sluice::kernels::cuda
