#include "kernels/cuda/fast/attention.h"

#include <cuda_device/launch.h>

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/fast/attention_common.h"
#include "kernels/cuda/fast/kv_readers.h"
#include "kernels/cuda/shared/attention_partials.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kAttentionWarps = kAttentionThreads / kWarpLanes;
constexpr int kSide = 16;

// Tokens [begin, end) of one sequence with the heads of a run, over one piece
// of positions. Query n: token begin + n / count, head first + n % count.
struct QueryTile {
  int64_t begin;
  int64_t end;
  HeadRun run;
  int64_t chunk;
  KvPlace kv;
  int lo;  // positions of the piece that some query sees: [lo, hi)
  int hi;

  SLUICE_DEVICE int count() const {
    return static_cast<int>(end - begin) * run.count;
  }
  SLUICE_DEVICE int64_t Token(int n) const { return begin + n / run.count; }
  SLUICE_DEVICE int64_t Head(int n) const { return run.first + n % run.count; }
  SLUICE_DEVICE int first_step() const { return lo / kSide; }
  SLUICE_DEVICE int end_step() const { return (hi + kSide - 1) / kSide; }
  SLUICE_DEVICE bool Has(int j) const { return j >= lo && j < hi; }
  SLUICE_DEVICE int64_t Position(int j) const {
    return chunk * kAttentionChunk + j;
  }
};

// A block per run of tokens, run of heads and piece. Shared memory: q as
// operand B, [octet][step][lane] 2 words; scores, [query][256], whose first
// halves become weights in BF16.
template <typename Reader, int kOctets>
struct TileChunkKernel {
  static constexpr int kThreads = kAttentionThreads;
  static constexpr int kQueries = 8 * kOctets;
  using Args = TileAttentionArgs;

  static SLUICE_DEVICE int StepsOfHead(const Args& a) {
    return static_cast<int>((a.attention.kv.head_dim + kSide - 1) / kSide);
  }
  static size_t SharedBytes(int64_t head_dim) {
    const int64_t steps = (head_dim + kSide - 1) / kSide;
    return sizeof(uint32_t) *
           static_cast<size_t>(kOctets * steps * kWarpLanes * 2 +
                               kQueries * kAttentionChunk);
  }

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const AttentionQueries& queries = a.attention.queries;
    const int64_t chunk = block.index() % a.attention.memory.max_chunks;
    const int64_t unit = block.index() / a.attention.memory.max_chunks;
    const int64_t from = unit / a.cut.num_runs * a.cut.tokens;
    const int64_t stop = from + a.cut.tokens < queries.q.rows
                             ? from + a.cut.tokens
                             : queries.q.rows;
    const auto q = block.Allocate<uint32_t>(int64_t{kOctets} * StepsOfHead(a) *
                                            kWarpLanes * 2);
    const auto scores = block.Allocate<uint32_t>(kQueries * kAttentionChunk);
    QueryTile tile;
    tile.run = a.cut.runs[unit % a.cut.num_runs];
    tile.chunk = chunk;
    for (tile.begin = from; tile.begin < stop; tile.begin = tile.end) {
      const int64_t offset = queries.table_offsets[tile.begin];
      Seen seen = SeenOf(a.attention, tile.begin, chunk);
      tile.end = tile.begin + 1;
      for (; tile.end < stop && queries.table_offsets[tile.end] == offset;
           ++tile.end) {
        const Seen more = SeenOf(a.attention, tile.end, chunk);
        if (more.begin >= more.end) continue;
        const bool first = seen.begin >= seen.end;
        if (first || more.begin < seen.begin) seen.begin = more.begin;
        if (first || more.end > seen.end) seen.end = more.end;
      }
      if (seen.begin >= seen.end) continue;  // the whole block
      tile.lo = seen.begin;
      tile.hi = seen.end;
      tile.kv = {&a.attention.kv, tile.run.kv_head,
                 queries.block_tables + offset};
      LoadQueries(block, a, tile, q);
      block.Sync();
      Score(block, a, tile, q, scores);
      block.Sync();
      for (int n = block.warp(); n < tile.count(); n += kAttentionWarps) {
        Weigh(block, a, tile, n, scores);
      }
      block.Sync();
      AddValues(block, a, tile, scores);
      block.Sync();
    }
  }

  static SLUICE_DEVICE void LoadQueries(Block& block, const Args& a,
                                        const QueryTile& tile,
                                        const Shared<uint32_t>& q) {
    const ConstMatrix& from = a.attention.queries.q;
    const int64_t dim = a.attention.kv.head_dim;
    const int steps = StepsOfHead(a);
    for (int i = block.thread(); i < kOctets * steps * kWarpLanes;
         i += kThreads) {
      const int lane = i % kWarpLanes;
      const int n = i / kWarpLanes / steps * 8 + lane / 4;
      const int64_t d = int64_t{i} / kWarpLanes % steps * kSide + lane % 4 * 4;
      const bool has = n < tile.count() && d < dim;
      KeyWords words;
      if (has) {
        const float* const x =
            from.data + tile.Token(n) * from.stride + tile.Head(n) * dim + d;
        words = {PackPair(x[0], x[1]), PackPair(x[2], x[3])};
      }
      q.Set(int64_t{i} * 2, words.lower);
      q.Set(int64_t{i} * 2 + 1, words.upper);
    }
  }

  // A warp per 16 positions.
  static SLUICE_DEVICE void Score(Block& block, const Args& a,
                                  const QueryTile& tile,
                                  const Shared<uint32_t>& q,
                                  const Shared<uint32_t>& scores) {
    const int64_t dim = a.attention.kv.head_dim;
    const int steps = StepsOfHead(a);
    for (int p = tile.first_step() + block.warp(); p < tile.end_step();
         p += kAttentionWarps) {
      const int j = p * kSide + block.lane() / 4;
      TileC sums[kOctets] = {};
      for (int step = 0; step < steps; ++step) {
        const int64_t d = int64_t{step} * kSide + block.lane() % 4 * 4;
        KeyWords rows[2];
        for (int i = 0; i < 2; ++i) {
          if (d < dim && tile.Has(j + 8 * i)) {
            rows[i] = Reader::Key(tile.kv.At(tile.Position(j + 8 * i)), d);
          }
        }
        const TileA keys = {
            {rows[0].lower, rows[1].lower, rows[0].upper, rows[1].upper}};
        for (int o = 0; o < kOctets; ++o) {
          const int64_t at =
              (int64_t{o} * steps + step) * kWarpLanes + block.lane();
          block.MultiplyTile(keys, {{q.Get(at * 2), q.Get(at * 2 + 1)}},
                             sums[o]);
        }
      }
      for (int o = 0; o < kOctets; ++o) {
        KeepScores(block, a, tile, j, o, sums[o], scores);
      }
    }
  }
  static SLUICE_DEVICE void KeepScores(Block& block, const Args& a,
                                       const QueryTile& tile, int j, int octet,
                                       const TileC& sums,
                                       const Shared<uint32_t>& scores) {
    for (int v = 0; v < 4; ++v) {
      const int n = octet * 8 + block.lane() % 4 * 2 + v % 2;
      if (n >= tile.count()) continue;
      const int position = j + v / 2 * 8;
      const Seen seen = SeenOf(a.attention, tile.Token(n), tile.chunk);
      const float score = position >= seen.begin && position < seen.end
                              ? sums.values[v] * a.attention.queries.scale
                              : -Infinity();
      scores.Set(n * kAttentionChunk + position, BitCast<uint32_t>(score));
    }
  }

  // Turns a query's scores into weights, and stores its maximum and sum. A
  // warp calls.
  static SLUICE_DEVICE void Weigh(Block& block, const Args& a,
                                  const QueryTile& tile, int n,
                                  const Shared<uint32_t>& scores) {
    constexpr int kEach = kAttentionChunk / kWarpLanes;
    const int begin = tile.first_step() * kSide;
    const int end = tile.end_step() * kSide;
    const Seen seen = SeenOf(a.attention, tile.Token(n), tile.chunk);
    const bool any = seen.begin < seen.end;
    float weights[kEach];
    float max = -Infinity();
    for (int i = 0; i < kEach; ++i) {
      const int j = i / 2 * 64 + block.lane() * 2 + i % 2;
      weights[i] = j >= begin && j < end
                       ? BitCast<float>(scores.Get(n * kAttentionChunk + j))
                       : -Infinity();
      max = weights[i] > max ? weights[i] : max;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = block.ShuffleXor(max, mask);
      max = other > max ? other : max;
    }
    float sum = 0.0f;
    for (int i = 0; i < kEach; ++i) {
      weights[i] = any ? Exp(weights[i] - max) : 0.0f;
      sum = sum + weights[i];
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      sum = sum + block.ShuffleXor(sum, mask);
    }
    // All lanes have read their scores.
    block.SyncWarp();
    for (int i = 0; i < kEach; i += 2) {
      const int j = i / 2 * 64 + block.lane() * 2;
      if (j < begin || j >= end) continue;
      scores.Set(n * kAttentionChunk + j / 2,
                 PackPair(weights[i], weights[i + 1]));
    }
    if (!any || block.lane() != 0) return;
    float* const partial = PartialAt(a, tile, n);
    partial[0] = max;
    partial[1] = sum;
  }
  static SLUICE_DEVICE float* PartialAt(const Args& a, const QueryTile& tile,
                                        int n) {
    return PartialOf(
        a.attention,
        tile.Token(n) * a.attention.queries.num_heads + tile.Head(n),
        tile.chunk);
  }

  // A warp per 16 elements of a head: row g of the tile is element 2g, row g +
  // 8 element 2g + 1.
  static SLUICE_DEVICE void AddValues(Block& block, const Args& a,
                                      const QueryTile& tile,
                                      const Shared<uint32_t>& weights) {
    const int64_t dim = a.attention.kv.head_dim;
    for (int e = block.warp(); e < StepsOfHead(a); e += kAttentionWarps) {
      const int64_t d = int64_t{e} * kSide + block.lane() / 4 * 2;
      TileC sums[kOctets] = {};
      for (int p = tile.first_step(); p < tile.end_step(); ++p) {
        const int j = p * kSide + block.lane() % 4 * 4;
        uint32_t pairs[4] = {};
        for (int i = 0; i < 4; ++i) {
          if (d < dim && tile.Has(j + i)) {
            pairs[i] = Reader::Value(tile.kv.At(tile.Position(j + i)), d);
          }
        }
        const TileA values = {
            {LowerHalves(pairs[0], pairs[1]), UpperHalves(pairs[0], pairs[1]),
             LowerHalves(pairs[2], pairs[3]), UpperHalves(pairs[2], pairs[3])}};
        for (int o = 0; o < kOctets; ++o) {
          const int n = o * 8 + block.lane() / 4;
          TileB own = {};
          if (n < tile.count()) {
            const int at = n * kAttentionChunk + j / 2;
            own = {{weights.Get(at), weights.Get(at + 1)}};
          }
          block.MultiplyTile(values, own, sums[o]);
        }
      }
      for (int o = 0; o < kOctets; ++o) KeepSums(block, a, tile, d, o, sums[o]);
    }
  }
  static SLUICE_DEVICE void KeepSums(Block& block, const Args& a,
                                     const QueryTile& tile, int64_t d,
                                     int octet, const TileC& sums) {
    if (d >= a.attention.kv.head_dim) return;
    for (int v = 0; v < 4; ++v) {
      const int n = octet * 8 + block.lane() % 4 * 2 + v % 2;
      if (n >= tile.count()) continue;
      const Seen seen = SeenOf(a.attention, tile.Token(n), tile.chunk);
      if (seen.begin >= seen.end) continue;
      PartialAt(a, tile, n)[2 + d + v / 2] = sums.values[v];
    }
  }
};

template <typename Reader>
void StartChunks(Stream stream, TileAttentionArgs& args) {
  constexpr int kWide = 4;
  constexpr size_t kSharedBytes = 48 * 1024;
  AttentionCut& cut = args.cut;
  const int64_t dim = args.attention.kv.head_dim;
  const bool wide =
      cut.tokens > 1 &&
      TileChunkKernel<Reader, kWide>::SharedBytes(dim) <= kSharedBytes;
  cut.tokens =
      std::clamp((wide ? 8 * kWide : 8) / cut.most_heads, 1, cut.tokens);
  const int64_t tokens = args.attention.queries.q.rows;
  const int64_t blocks = (tokens + cut.tokens - 1) / cut.tokens * cut.num_runs *
                         args.attention.memory.max_chunks;
  const auto start = [&](auto kernel) {
    using Kernel = decltype(kernel);
    Launch<Kernel>(stream, blocks, Kernel::SharedBytes(dim), args);
  };
  if (wide) return start(TileChunkKernel<Reader, kWide>());
  start(TileChunkKernel<Reader, 1>());
}

void CheckArgs(const TileAttentionArgs& args) {
  const auto& [queries, kv, memory, out] = args.attention;
  const AttentionCut& cut = args.cut;
  SLUICE_CHECK(queries.q.cols == queries.num_heads * kv.head_dim);
  SLUICE_CHECK(out.rows == queries.q.rows && out.cols == queries.q.cols);
  SLUICE_CHECK(kv.block_tokens > 0 && kAttentionChunk % kv.block_tokens == 0);
  SLUICE_CHECK(kv.head_dim % 4 == 0);
  SLUICE_CHECK(cut.num_runs > 0 && cut.tokens > 0 && cut.most_heads > 0 &&
               cut.most_heads <= kMostHeads);
  SLUICE_CHECK(memory.max_chunks > 0 &&
               memory.max_chunks < 1 << (kMostLevels - 1));
  if (kv.type == WeightType::kQ8_0) {
    SLUICE_CHECK(kv.block_tokens == kGroupRows &&
                 kv.head_dim % kShortBlock == 0);
  }
}

// Whether there are rotations, and rows, tables and places of the cache may be
// read in aligned groups of four.
bool HasQuads(const RopeQueries& queries, const KvView& kv) {
  const int64_t half = queries.table.half;
  if (!AreAligned(queries.all.q) || half == 0 || half % 4 != 0) return false;
  for (const void* data : {static_cast<const void*>(queries.table.cos),
                           static_cast<const void*>(queries.table.sin),
                           static_cast<const void*>(kv.keys),
                           static_cast<const void*>(kv.values)}) {
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  }
  return true;
}

}  // namespace

std::vector<HeadRun> HeadRunsOf(std::span<const int32_t> kv_heads) {
  std::vector<HeadRun> runs;
  for (size_t h = 0; h < kv_heads.size(); ++h) {
    if (!runs.empty() && runs.back().kv_head == kv_heads[h] &&
        runs.back().count < kMostHeads) {
      ++runs.back().count;
    } else {
      runs.push_back({kv_heads[h], static_cast<int32_t>(h), 1});
    }
  }
  return runs;
}

int64_t TileAttentionFloats(int64_t heads, const KvView& kv,
                            const AttentionCut& cut, int32_t max_chunks) {
  if (HasLeaves(kv) && max_chunks == 1) return 0;
  if (HasLeaves(kv) && cut.tokens > 1) max_chunks = WaitingLevels(max_chunks);
  return AttentionFloats(1, heads, kv.head_dim, max_chunks);
}

void TilePagedAttention(Stream stream, const AttentionQueries& queries,
                        const KvView& kv, const AttentionCut& cut,
                        const AttentionMemory& memory, Matrix out) {
  TileAttentionArgs args = {{queries, kv, memory, out}, cut, {}};
  CheckArgs(args);
  if (HasLeaves(kv)) return StartLeaves(stream, args);
  switch (kv.type) {
    case WeightType::kF32:
      StartChunks<F32KvReader>(stream, args);
      break;
    case WeightType::kBf16:
      StartChunks<Bf16KvReader>(stream, args);
      break;
    default:
      SLUICE_CHECK(kv.type == WeightType::kQ8_0);
      StartChunks<Q8KvReader>(stream, args);
  }
  Launch<JoinKernel>(stream, out.rows * queries.num_heads, 0, args.attention);
}

bool TileRopeAttention(Stream stream, const RopeQueries& queries,
                       const KvView& kv, const AttentionCut& cut,
                       const AttentionMemory& memory, Matrix out) {
  // Every block rotates its queries. Where blocks come in many rounds that may
  // take longer than a launch; how many, no GPU has told.
  constexpr int64_t kMostBlocks = 4;  // of a multiprocessor
  const int64_t blocks = out.rows * cut.num_runs * memory.max_chunks;
  const DeviceLimits limits = LimitsOf(stream);
  if (!limits.asked.Has(Unconfirmed::kRopeAttention) || !HasLeaves(kv) ||
      cut.tokens > 1 || cut.kv_heads != kv.num_kv_heads ||
      !HasQuads(queries, kv) || blocks > kMostBlocks * limits.multiprocessors) {
    return false;
  }
  const RowRope rope = {queries.q_norm, queries.k_norm, queries.table,
                        queries.style == RopeStyle::kHalfSplit ? 1 : 0};
  const TileAttentionArgs args = {{queries.all, kv, memory, out}, cut, rope};
  CheckArgs(args);
  SLUICE_CHECK(2 * queries.table.half <= kv.head_dim);
  StartLeaves(stream, args);
  return true;
}

}  // namespace sluice::kernels::cuda
