#include "kernels/chosen_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/matmul.h"

namespace sluice::kernels {
namespace {

// Tokens are dealt out where each thread gets so many, else each is cut.
constexpr int64_t kTokensPerThread = 2;

int64_t BytesOf(WeightType type) { return type == WeightType::kF32 ? 4 : 2; }

// Token t's scores of the positions of its blocks [begin, end), from
// scores[begin * block_tokens] on.
void ScoreBlocks(const Context& context, const IndexQueries& queries,
                 const IndexKeys& keys, int64_t t, cpu::Range blocks,
                 float* scores) {
  const int64_t tokens = keys.block_tokens;
  const int64_t heads = queries.num_heads;
  thread_local std::vector<float> products;
  products.resize(static_cast<size_t>(heads * tokens));
  const ConstMatrix q = {queries.q.row(t), heads, keys.dim, keys.dim};
  const int32_t* table = queries.block_tables + queries.table_offsets[t];
  const float* weights = queries.weights.row(t);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const auto* const at = static_cast<const std::byte*>(keys.keys) +
                           table[b] * tokens * keys.dim * BytesOf(keys.type);
    MatMul({.executor = nullptr, .isa = context.isa}, q,
           {at, keys.type, tokens, keys.dim}, /*bias=*/nullptr,
           {products.data(), heads, tokens, tokens});
    float* const sums = scores + b * tokens;
    std::fill_n(sums, tokens, 0.0f);
    for (int64_t h = 0; h < heads; ++h) {
      const float weight = weights[h] * queries.weight_scale;
      const float* const row = products.data() + h * tokens;
      for (int64_t j = 0; j < tokens; ++j) {
        const float score = row[j] * queries.scale;
        // Keeps a NaN.
        const float seen = score < 0.0f ? 0.0f : score;
        sums[j] += weight * seen;
      }
    }
  }
}

// Writes the positions of the `count` largest of scores [0, size).
void Choose(const float* scores, int32_t size, int64_t count, int32_t* chosen) {
  thread_local std::vector<int32_t> order;
  order.resize(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  const auto of = [scores](int32_t position) {
    const float score = scores[position];
    return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  };
  std::nth_element(order.begin(), order.begin() + count, order.end(),
                   [&](int32_t a, int32_t b) {
                     const float x = of(a);
                     const float y = of(b);
                     return x > y || (x == y && a < b);
                   });
  std::sort(order.begin(), order.begin() + count);
  std::copy_n(order.begin(), count, chosen);
}

void ChooseOfToken(const Context& context, const IndexQueries& queries,
                   const IndexKeys& keys, int64_t t, int64_t count,
                   int32_t* chosen) {
  const int32_t size = queries.positions[t] + 1;
  if (size <= count) {
    std::iota(chosen, chosen + size, 0);
    std::fill(chosen + size, chosen + count, -1);
    return;
  }
  const int64_t blocks = (size + keys.block_tokens - 1) / keys.block_tokens;
  thread_local std::vector<float> memory;
  memory.resize(static_cast<size_t>(blocks * keys.block_tokens));
  float* const scores = memory.data();  // the caller's, seen by other threads
  const int tasks = cpu::NumTasks(
      context, blocks * keys.block_tokens * queries.num_heads * keys.dim);
  ParallelFor(context, tasks, [&](int task) {
    ScoreBlocks(context, queries, keys, t, cpu::PartOf(blocks, task, tasks, 1),
                scores);
  });
  Choose(scores, size, count, chosen);
}

// Calls run(context, t) for each token in [begin, end): several at once on a
// thread each, or one after another on all threads.
template <typename Run>
void ForTokens(const Context& context, int64_t begin, int64_t end,
               const Run& run) {
  const int threads = NumThreads(context);
  const int64_t count = end - begin;
  if (count < threads * kTokensPerThread) {
    for (int64_t t = begin; t < end; ++t) run(context, t);
    return;
  }
  const Context alone = {.executor = nullptr, .isa = context.isa};
  ParallelFor(context, threads, [&](int task) {
    // Later tokens see more: they are dealt out.
    for (int64_t t = begin + task; t < end; t += threads) run(alone, t);
  });
}

// Attention of token t over copies of the rows that it has chosen.
void AttendToChosen(const Context& context, const AttentionQueries& queries,
                    const KvView& kv, std::span<const int32_t> chosen,
                    int64_t t, Matrix out) {
  const auto size = static_cast<int32_t>(chosen.size());
  const int64_t row = kv.bytes(kv.head_dim);
  const int64_t heads = kv.num_kv_heads;
  const int64_t blocks = (size + kv.block_tokens - 1) / kv.block_tokens;
  thread_local std::vector<float> memory;
  thread_local std::vector<int32_t> table;
  memory.resize(static_cast<size_t>(blocks * heads * kv.block_tokens * row /
                                        static_cast<int64_t>(sizeof(float)) +
                                    1));
  table.resize(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  auto* const to = reinterpret_cast<std::byte*>(memory.data());
  const int32_t* blocks_of = queries.block_tables + queries.table_offsets[t];
  for (int32_t i = 0; i < size; ++i) {
    const int32_t position = chosen[static_cast<size_t>(i)];
    const int64_t block = blocks_of[position / kv.block_tokens];
    const int64_t place = position % kv.block_tokens;
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = [&](int64_t b, int64_t p) {
        return ((b * heads + h) * kv.block_tokens + p) * row;
      };
      std::memcpy(to + at(i / kv.block_tokens, i % kv.block_tokens),
                  static_cast<const std::byte*>(kv.keys) + at(block, place),
                  static_cast<size_t>(row));
    }
  }
  KvView copy = kv;
  copy.keys = to;
  copy.num_blocks = blocks;
  const int32_t last = size - 1;
  const int64_t offset = 0;
  AttentionQueries one = queries;
  one.q = {queries.q.row(t), 1, queries.q.cols, queries.q.stride};
  one.positions = &last;
  one.block_tables = table.data();
  one.table_offsets = &offset;
  PagedAttention(context, one, copy, {out.row(t), 1, out.cols, out.stride});
}

}  // namespace

void StoreIndexKeys(ConstMatrix k, const int64_t* slots,
                    const IndexKeys& keys) {
  // Index keys are a cache of one head without values.
  StoreKv({}, k, {}, slots,
          {.keys = keys.keys,
           .num_blocks = keys.num_blocks,
           .num_kv_heads = 1,
           .block_tokens = keys.block_tokens,
           .head_dim = keys.dim,
           .type = keys.type,
           .value_dim = keys.dim});
}

void ChoosePositions(const Context& context, const IndexQueries& queries,
                     const IndexKeys& keys, int64_t count, int32_t* chosen) {
  SLUICE_CHECK(queries.q.cols == queries.num_heads * keys.dim);
  SLUICE_CHECK(queries.weights.cols == queries.num_heads);
  SLUICE_CHECK(queries.weights.rows == queries.q.rows && count > 0);
  SLUICE_CHECK(keys.type == WeightType::kF32 || keys.type == WeightType::kBf16);
  ForTokens(context, 0, queries.q.rows, [&](const Context& own, int64_t t) {
    ChooseOfToken(own, queries, keys, t, count, chosen + t * count);
  });
}

void ChosenAttention(const Context& context, const AttentionQueries& queries,
                     const KvView& kv, const int32_t* chosen, int64_t count,
                     Matrix out) {
  SLUICE_CHECK(kv.values == nullptr && queries.window == 0);
  const int64_t tokens = queries.q.rows;
  const auto sees_all = [&](int64_t t) { return queries.positions[t] < count; };
  for (int64_t begin = 0, end = 0; begin < tokens; begin = end) {
    const bool all = sees_all(begin);
    end = begin + 1;
    while (end < tokens && sees_all(end) == all) ++end;
    if (!all) {
      ForTokens(context, begin, end, [&](const Context& own, int64_t t) {
        AttendToChosen(own, queries, kv,
                       {chosen + t * count, static_cast<size_t>(count)}, t,
                       out);
      });
      continue;
    }
    AttentionQueries run = queries;
    run.q = {queries.q.row(begin), end - begin, queries.q.cols,
             queries.q.stride};
    run.positions += begin;
    run.table_offsets += begin;
    PagedAttention(context, run, kv,
                   {out.row(begin), end - begin, out.cols, out.stride});
  }
}

}  // namespace sluice::kernels
