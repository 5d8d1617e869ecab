#include "kernels/cpu/attention_runner.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <numeric>

#include "kernels/block_format.h"
#include "kernels/exp_log.h"

namespace sluice::kernels::cpu {

static_assert(kAttentionChunk == kChunk);

void AttentionScratch::Reserve(int64_t head_dim) {
  constexpr int64_t kLine = 64 / sizeof(float);
  head_dim_ = head_dim;
  const int64_t per_query =
      head_dim + kChunk + (head_dim + 16) + (kChunkLevel + 1) * (head_dim + 3);
  const auto size = static_cast<size_t>(kMaxQueries * per_query + kLine);
  std::iota(places_.begin(), places_.end(), 0);
  if (memory_.size() >= size) return;
  memory_.resize(size);
  void* begin = memory_.data();
  size_t space = size * sizeof(float);
  floats_ = static_cast<float*>(
      std::align(64, (size - kLine) * sizeof(float), begin, space));
}

AttentionPartials AttentionScratch::at(int level) {
  float* base = packed() + kMaxQueries * (head_dim_ + 16) +
                places_[level] * kMaxQueries * (head_dim_ + 3);
  return {.seen = base,
          .max = base + kMaxQueries,
          .sum = base + 2 * kMaxQueries,
          .accumulators = base + 3 * kMaxQueries,
          .scores = scores(),
          .packed = packed()};
}

void AttentionRunner::Run(const AttentionUnit& unit,
                          AttentionScratch& scratch) const {
  scratch.Reserve(kv_.head_dim);
  const AttentionArgs args = ArgsOf(unit, scratch);
  const Pending pending = RunChunks(unit, args, 0, unit.end_chunk, scratch);
  Emit(unit, Fold(args, pending, scratch));
}

void AttentionRunner::RunPiece(const AttentionUnit& unit, int32_t piece,
                               int log2_chunks, AttentionScratch& scratch,
                               float* results) const {
  scratch.Reserve(kv_.head_dim);
  const AttentionArgs args = ArgsOf(unit, scratch);
  const int32_t begin = piece << log2_chunks;
  const int32_t end = std::min(begin + (1 << log2_chunks), unit.end_chunk);
  const Pending pending = RunChunks(unit, args, begin, end, scratch);
  if (pending == 0) {
    std::fill_n(results, kMaxQueries, 0.0f);  // nothing is seen of it
    return;
  }
  std::copy_n(Fold(args, pending, scratch).seen, FloatsOf(args), results);
}

void AttentionRunner::JoinPieces(const AttentionUnit& unit, int32_t num_pieces,
                                 AttentionScratch& scratch,
                                 const float* results) const {
  scratch.Reserve(kv_.head_dim);
  const AttentionArgs args = ArgsOf(unit, scratch);
  Pending pending = 0;
  for (int32_t piece = 0; piece < num_pieces; ++piece) {
    std::copy_n(results + piece * PieceSize(), FloatsOf(args),
                scratch.at(AttentionScratch::kChunkLevel).seen);
    pending = Climb(args, piece, pending, scratch);
  }
  Emit(unit, Fold(args, pending, scratch));
}

// A partial with its header.
int64_t AttentionRunner::FloatsOf(const AttentionArgs& args) const {
  const int columns =
      LanesAreQueries(args.num_queries) ? kMaxQueries : args.num_queries;
  return 3 * kMaxQueries + columns * kv_.value_size();
}

AttentionArgs AttentionRunner::ArgsOf(const AttentionUnit& unit,
                                      AttentionScratch& scratch) const {
  const int64_t head_dim = kv_.head_dim;
  const int64_t offset =
      queries_.kv_heads[unit.head] * kv_.block_tokens * head_dim;
  const int64_t stride = kv_.num_kv_heads * kv_.block_tokens * head_dim;
  const bool q8 = kv_.type == WeightType::kQ8_0;
  if (q8) {
    scratch.value_scales.resize(
        static_cast<size_t>(kChunk * head_dim / kShortBlock));
  }
  AttentionArgs args = {
      .keys = kv_.at(kv_.keys, offset),
      .values = kv_.values != nullptr
                    ? kv_.at(kv_.values, offset)
                    : kv_.at(kv_.keys, offset + head_dim - kv_.value_dim),
      .block_stride = q8 ? kv_.bytes(stride) : stride,
      .table = queries_.block_tables + queries_.table_offsets[unit.token],
      .block_tokens = kv_.block_tokens,
      .head_dim = head_dim,
      .value_dim = kv_.value_size(),
      .scale = queries_.scale,
      .soft_cap = queries_.soft_cap,
      .num_queries = unit.num_queries(),
      .queries = scratch.queries(),
      .begin = std::numeric_limits<int32_t>::max(),
      .value_scales = scratch.value_scales.data()};
  const bool lanes = LanesAreQueries(args.num_queries);
  if (lanes) std::fill_n(scratch.queries(), kMaxQueries * head_dim, 0.0f);
  for (int q = 0; q < args.num_queries; ++q) {
    const int64_t t = unit.token + q / unit.num_heads;
    const int64_t head = unit.head + q % unit.num_heads;
    const int32_t position = queries_.positions[t];
    args.first[q] =
        queries_.window > 0 ? std::max(0, position - queries_.window + 1) : 0;
    args.last[q] = position;
    args.begin = std::min(args.begin, args.first[q]);
    args.end = std::max(args.end, position + 1);
    const float* from = queries_.q.row(t) + head * head_dim;
    if (lanes) {
      for (int64_t d = 0; d < head_dim; ++d) {
        scratch.queries()[d * kMaxQueries + q] = from[d];
      }
    } else {
      std::copy_n(from, head_dim, scratch.queries() + q * head_dim);
    }
  }
  return args;
}

void AttentionRunner::QuantizeQueries(int num_queries,
                                      AttentionScratch& scratch) const {
  const int64_t cols = kv_.head_dim;
  const QuantizedRows& rows = scratch.quantized.Quantize(
      {nullptr, kv_.blocks}, {scratch.queries(), num_queries, cols, cols},
      kShortBlock);
  const int64_t blocks = cols / kShortBlock;
  for (int q = 0; q < num_queries; ++q) {
    if (scratch.quantized.finite(q)) continue;
    std::fill_n(rows.scales + q * blocks, blocks,
                std::numeric_limits<float>::quiet_NaN());
  }
  const int words = kv_.blocks->of_format[0].column_words;
  scratch.columns.resize(static_cast<size_t>(num_queries * blocks * words));
}

void AttentionRunner::ScoreChunk(const AttentionArgs& args, int32_t chunk,
                                 AttentionScratch& scratch) const {
  const uint8_t* keys[kChunk / kGroupRows];
  const uint8_t* values[kChunk / kGroupRows];
  const int64_t blocks = args.head_dim / kShortBlock;
  const int64_t codes = kGroupRows * args.head_dim;  // of a block's values
  const int32_t chunk_begin = chunk * kChunk;
  const int32_t begin =
      std::max(args.begin, chunk_begin) / kGroupRows * kGroupRows;
  const int32_t end = std::min(args.end, chunk_begin + kChunk);
  int64_t groups = 0;
  for (int32_t position = begin; position < end; position += kGroupRows) {
    const int64_t at = args.table[position / kGroupRows] * args.block_stride;
    keys[groups] = static_cast<const uint8_t*>(args.keys) + at;
    values[groups++] = static_cast<const uint8_t*>(args.values) + at;
  }
  const QuantizedRows& queries = scratch.quantized.rows();
  const AttentionPartials out = scratch.at(AttentionScratch::kChunkLevel);
  kv_.blocks->score({.queries = {.codes = queries.codes,
                                 .scales = queries.scales,
                                 .sums = queries.sums,
                                 .tokens = args.num_queries,
                                 .blocks = blocks,
                                 .scratch = scratch.columns.data()},
                     .groups = keys,
                     .next = values,
                     .num_groups = groups,
                     .scale = args.scale,
                     .scores = out.scores + (begin - chunk_begin),
                     .stride = kChunk});
  for (int64_t g = 0; g < groups; ++g) {
    kv_.blocks->widen_halves(
        values[g] + codes, kGroupRows * blocks,
        scratch.value_scales.data() +
            (begin - chunk_begin + g * kGroupRows) * blocks);
  }
}

AttentionRunner::Pending AttentionRunner::RunChunks(
    const AttentionUnit& unit, const AttentionArgs& args, int32_t begin,
    int32_t end, AttentionScratch& scratch) const {
  const AttentionOps& attention = ops_.attention[static_cast<size_t>(kv_.type)];
  const auto run =
      LanesAreQueries(args.num_queries) ? attention.lanes : attention.chunk;
  const bool q8 = kv_.type == WeightType::kQ8_0;
  if (q8) QuantizeQueries(args.num_queries, scratch);
  Pending pending = 0;
  for (int32_t chunk = std::max(begin, unit.first_chunk); chunk < end;
       ++chunk) {
    if (q8) ScoreChunk(args, chunk, scratch);
    run(args, chunk, scratch.at(AttentionScratch::kChunkLevel));
    pending = Climb(args, chunk - begin, pending, scratch);
  }
  return pending;
}

// left = left joined with right, in that order.
void AttentionRunner::Join(const AttentionArgs& args,
                           const AttentionPartials& left,
                           const AttentionPartials& right) const {
  if (LanesAreQueries(args.num_queries)) {
    return ops_.join_lanes(args, left, right);
  }
  for (int q = 0; q < args.num_queries; ++q) {
    if (right.seen[q] == 0.0f) continue;
    float* to = left.accumulators + q * args.value_dim;
    const float* from = right.accumulators + q * args.value_dim;
    if (left.seen[q] == 0.0f) {
      left.seen[q] = 1.0f;
      left.max[q] = right.max[q];
      left.sum[q] = right.sum[q];
      std::copy_n(from, args.value_dim, to);
      continue;
    }
    const float max = std::max(left.max[q], right.max[q]);
    const float ea = Exp(left.max[q] - max);
    const float eb = Exp(right.max[q] - max);
    left.max[q] = max;
    ops_.join_scaled(left.sum + q, ea, right.sum + q, eb, 1);
    ops_.join_scaled(to, ea, from, eb, args.value_dim);
  }
}

// Puts leaf `index`, at kChunkLevel, into the tree: as a right child it is
// joined with its left sibling, as long as that makes a right child.
AttentionRunner::Pending AttentionRunner::Climb(
    const AttentionArgs& args, int32_t index, Pending pending,
    AttentionScratch& scratch) const {
  int level = 0;
  int source = AttentionScratch::kChunkLevel;
  for (; (index >> level) & 1; ++level) {
    if ((pending >> level & 1) == 0) continue;  // the left sibling is masked
    Join(args, scratch.at(level), scratch.at(source));
    pending &= ~(1u << level);
    source = level;
  }
  scratch.Swap(source, level);
  return pending | 1u << level;
}

// Joins what is left, the youngest nodes first; returns the root.
AttentionPartials AttentionRunner::Fold(const AttentionArgs& args,
                                        Pending pending,
                                        AttentionScratch& scratch) const {
  int level = std::countr_zero(pending);
  for (pending &= pending - 1; pending != 0; pending &= pending - 1) {
    const int left = std::countr_zero(pending);
    Join(args, scratch.at(left), scratch.at(level));
    level = left;
  }
  return scratch.at(level);
}

// Joins the sinks and writes the outputs.
void AttentionRunner::Emit(const AttentionUnit& unit,
                           const AttentionPartials& all) const {
  const int64_t value_dim = kv_.value_size();
  const bool lanes = LanesAreQueries(unit.num_queries());
  const int64_t step = lanes ? kMaxQueries : 1;
  for (int q = 0; q < unit.num_queries(); ++q) {
    const int64_t head = unit.head + q % unit.num_heads;
    float* from = all.accumulators + (lanes ? q : q * value_dim);
    if (queries_.sinks != nullptr) {
      const float sink = queries_.sinks[head];
      const float max = std::max(all.max[q], sink);
      const float ea = Exp(all.max[q] - max);
      const float eb = Exp(sink - max);
      const float one = 1.0f;
      const float zero = 0.0f;
      ops_.join_scaled(all.sum + q, ea, &one, eb, 1);
      for (int64_t d = 0; d < value_dim; ++d) {
        ops_.join_scaled(from + d * step, ea, &zero, eb, 1);
      }
    }
    float* to = out_.row(unit.token + q / unit.num_heads) + head * value_dim;
    for (int64_t d = 0; d < value_dim; ++d) {
      to[d] = from[d * step] / all.sum[q];
    }
  }
}

}  // namespace sluice::kernels::cpu
