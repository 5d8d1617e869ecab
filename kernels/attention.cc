#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/logits.h"

namespace sluice::kernels {
namespace {

static_assert(kAttentionChunk == cpu::kChunk);

// Tree levels over the chunks: enough for 2^31 positions.
constexpr int kLevels = 24;

// Query columns [head, head + num_heads) of tokens [token, token +
// num_tokens): one sequence, one kv head.
struct Unit {
  int64_t token = 0;
  int num_tokens = 0;
  int64_t head = 0;
  int num_heads = 0;
};

// One query's partial: m, l and the accumulator.
struct Partial {
  float* max;
  float* sum;
  float* accumulator;
};

// left = left joined with right, in that order.
void Join(const cpu::Ops& ops, const Partial& left, const Partial& right,
          int64_t head_dim) {
  const float max = std::max(*left.max, *right.max);
  const float ea = Exp(*left.max - max);
  const float eb = Exp(*right.max - max);
  *left.max = max;
  ops.join_scaled(left.sum, ea, right.sum, eb, 1);
  ops.join_scaled(left.accumulator, ea, right.accumulator, eb, head_dim);
}

// A thread's scratch: it grows to what the largest unit needed and stays.
class Scratch {
 public:
  void Reserve(int64_t head_dim) {
    head_dim_ = head_dim;
    const int64_t per_level = cpu::kMaxQueries * (head_dim + 2);
    const auto size = static_cast<size_t>(
        cpu::kMaxQueries * (kAttentionChunk + 2 * head_dim + 16) +
        (kLevels + 1) * per_level);
    if (floats_.size() < size) floats_.resize(size);
  }
  float* queries() { return floats_.data(); }
  float* packed() { return queries() + cpu::kMaxQueries * head_dim_; }
  float* scores() { return packed() + cpu::kMaxQueries * (head_dim_ + 16); }
  // Level kLevels is the partial of the chunk at hand.
  cpu::AttentionPartials level(int i) {
    float* base = scores() + cpu::kMaxQueries * kAttentionChunk +
                  i * cpu::kMaxQueries * (head_dim_ + 2);
    return {.max = base,
            .sum = base + cpu::kMaxQueries,
            .accumulators = base + 2 * cpu::kMaxQueries,
            .scores = scores(),
            .packed = packed()};
  }
  Partial partial(int i, int query) {
    const cpu::AttentionPartials all = level(i);
    return {all.max + query, all.sum + query,
            all.accumulators + query * head_dim_};
  }

 private:
  int64_t head_dim_ = 0;
  std::vector<float> floats_;
};

void Copy(const Partial& from, const Partial& to, int64_t head_dim) {
  *to.max = *from.max;
  *to.sum = *from.sum;
  std::memcpy(to.accumulator, from.accumulator,
              static_cast<size_t>(head_dim) * sizeof(float));
}

class UnitRunner {
 public:
  UnitRunner(const cpu::Ops& ops, const AttentionQueries& queries,
             const KvView& kv, Matrix out)
      : ops_(ops), queries_(queries), kv_(kv), out_(out) {}

  void Run(const Unit& unit, Scratch& scratch) const {
    scratch.Reserve(kv_.head_dim);
    const cpu::AttentionArgs args = ArgsOf(unit, scratch);
    const int32_t first =
        *std::min_element(args.first, args.first + args.num_queries);
    const int32_t last =
        *std::max_element(args.last, args.last + args.num_queries);
    // Bit k of pending[q]: level k holds a finished left child.
    uint32_t pending[cpu::kMaxQueries] = {};
    for (int32_t chunk = first / kAttentionChunk;
         chunk <= last / kAttentionChunk; ++chunk) {
      ops_.attention_chunk(args, chunk, scratch.level(kLevels));
      for (int q = 0; q < args.num_queries; ++q) {
        if (args.first[q] / kAttentionChunk <= chunk &&
            chunk <= args.last[q] / kAttentionChunk) {
          Climb(chunk, q, scratch, pending[q]);
        }
      }
    }
    for (int q = 0; q < args.num_queries; ++q) {
      Finish(unit, q, scratch, pending[q]);
    }
  }

 private:
  cpu::AttentionArgs ArgsOf(const Unit& unit, Scratch& scratch) const {
    const int64_t head_dim = kv_.head_dim;
    const int64_t offset =
        queries_.kv_heads[unit.head] * kv_.block_tokens * head_dim;
    cpu::AttentionArgs args = {
        .keys = kv_.keys + offset,
        .values = kv_.values + offset,
        .block_stride = kv_.num_kv_heads * kv_.block_tokens * head_dim,
        .table = queries_.block_tables + queries_.table_offsets[unit.token],
        .block_tokens = kv_.block_tokens,
        .head_dim = head_dim,
        .scale = queries_.scale,
        .num_queries = unit.num_tokens * unit.num_heads,
        .queries = scratch.queries()};
    for (int i = 0; i < unit.num_tokens; ++i) {
      const int64_t t = unit.token + i;
      const int32_t position = queries_.positions[t];
      const int32_t first =
          queries_.window > 0 ? std::max(0, position - queries_.window + 1) : 0;
      const int at = i * unit.num_heads;
      std::memcpy(
          scratch.queries() + at * head_dim,
          queries_.q.row(t) + unit.head * head_dim,
          static_cast<size_t>(unit.num_heads * head_dim) * sizeof(float));
      std::fill_n(args.first + at, unit.num_heads, first);
      std::fill_n(args.last + at, unit.num_heads, position);
    }
    return args;
  }

  // Puts the chunk's partial into the tree: as a right child it is joined
  // with its left sibling, as long as that makes a right child.
  void Climb(int32_t chunk, int q, Scratch& scratch, uint32_t& pending) const {
    int level = 0;
    int source = kLevels;
    for (; (chunk >> level) & 1; ++level) {
      if ((pending >> level & 1) == 0) continue;  // left sibling is masked
      Join(ops_, scratch.partial(level, q), scratch.partial(source, q),
           kv_.head_dim);
      pending &= ~(1u << level);
      source = level;
    }
    Copy(scratch.partial(source, q), scratch.partial(level, q), kv_.head_dim);
    pending |= 1u << level;
  }

  // Joins what is left, the youngest nodes first, then the sink; writes out.
  void Finish(const Unit& unit, int q, Scratch& scratch,
              uint32_t pending) const {
    const int64_t token = unit.token + q / unit.num_heads;
    const int64_t head = unit.head + q % unit.num_heads;
    int level = std::countr_zero(pending);
    for (pending &= pending - 1; pending != 0; pending &= pending - 1) {
      const int left = std::countr_zero(pending);
      Join(ops_, scratch.partial(left, q), scratch.partial(level, q),
           kv_.head_dim);
      level = left;
    }
    const Partial all = scratch.partial(level, q);
    if (queries_.sinks != nullptr) {
      const float sink = queries_.sinks[head];
      const float max = std::max(*all.max, sink);
      const float ea = Exp(*all.max - max);
      const float eb = Exp(sink - max);
      const float one = 1.0f;
      const float zero = 0.0f;
      ops_.join_scaled(all.sum, ea, &one, eb, 1);
      for (int64_t d = 0; d < kv_.head_dim; ++d) {
        ops_.join_scaled(all.accumulator + d, ea, &zero, eb, 1);
      }
    }
    float* to = out_.row(token) + head * kv_.head_dim;
    for (int64_t d = 0; d < kv_.head_dim; ++d) {
      to[d] = all.accumulator[d] / *all.sum;
    }
  }

  const cpu::Ops& ops_;
  const AttentionQueries& queries_;
  const KvView& kv_;
  const Matrix out_;
};

}  // namespace

void StoreKv(const Context&, ConstMatrix k, ConstMatrix v, const int64_t* slots,
             const KvView& kv) {
  SLUICE_CHECK(k.cols == kv.num_kv_heads * kv.head_dim && v.cols == k.cols);
  SLUICE_CHECK(k.rows == v.rows);
  const auto bytes = static_cast<size_t>(kv.head_dim) * sizeof(float);
  for (int64_t t = 0; t < k.rows; ++t) {
    const int64_t block = slots[t] / kv.block_tokens;
    const int64_t place = slots[t] % kv.block_tokens;
    SLUICE_CHECK(slots[t] >= 0 && block < kv.num_blocks);
    for (int64_t h = 0; h < kv.num_kv_heads; ++h) {
      const int64_t to =
          ((block * kv.num_kv_heads + h) * kv.block_tokens + place) *
          kv.head_dim;
      std::memcpy(kv.keys + to, k.row(t) + h * kv.head_dim, bytes);
      std::memcpy(kv.values + to, v.row(t) + h * kv.head_dim, bytes);
    }
  }
}

void PagedAttention(const Context& context, const AttentionQueries& queries,
                    const KvView& kv, Matrix out) {
  const int64_t num_tokens = queries.q.rows;
  SLUICE_CHECK(queries.q.cols == queries.num_heads * kv.head_dim);
  SLUICE_CHECK(out.rows == num_tokens && out.cols == queries.q.cols);
  SLUICE_CHECK(kv.block_tokens > 0 && kAttentionChunk % kv.block_tokens == 0);
  thread_local std::vector<Unit> units;
  units.clear();
  int64_t work = 0;
  for (int64_t h = 0; h < queries.num_heads;) {
    int heads = 1;
    while (h + heads < queries.num_heads && heads < cpu::kMaxQueries &&
           queries.kv_heads[h + heads] == queries.kv_heads[h]) {
      ++heads;
    }
    const int most = cpu::kMaxQueries / heads;
    for (int64_t t = 0; t < num_tokens;) {
      int tokens = 1;
      while (t + tokens < num_tokens && tokens < most &&
             queries.table_offsets[t + tokens] == queries.table_offsets[t]) {
        ++tokens;
      }
      units.push_back({t, tokens, h, heads});
      work += int64_t{2} * tokens * heads * kv.head_dim *
              (queries.positions[t + tokens - 1] + 1);
      t += tokens;
    }
    h += heads;
  }
  const UnitRunner runner(cpu::OpsFor(context.isa), queries, kv, out);
  const auto count = static_cast<int>(units.size());
  const int tasks = std::min(count, cpu::NumTasks(context, work));
  const Unit* all = units.data();  // the lambda runs on other threads too
  ParallelFor(context, tasks, [&](int task) {
    thread_local Scratch scratch;
    // Neighbouring units cost about the same: deal them out.
    for (int i = task; i < count; i += tasks) runner.Run(all[i], scratch);
  });
}

}  // namespace sluice::kernels
