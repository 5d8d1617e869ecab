#include "kernels/cpu/attention_runner.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/exp_log.h"

namespace sluice::kernels::cpu {

static_assert(kAttentionChunk == kChunk);

void AttentionScratch::Reserve(int64_t head_dim) {
  head_dim_ = head_dim;
  const int64_t per_query =
      head_dim + (head_dim + 16) + kChunk + (kChunkLevel + 1) * (head_dim + 2);
  const auto size = static_cast<size_t>(kMaxQueries * per_query);
  if (floats_.size() < size) floats_.resize(size);
}

AttentionPartials AttentionScratch::at(int level) {
  float* base = scores() + kMaxQueries * (kChunk + level * (head_dim_ + 2));
  return {.max = base,
          .sum = base + kMaxQueries,
          .accumulators = base + 2 * kMaxQueries,
          .scores = scores(),
          .packed = packed()};
}

Partial AttentionScratch::partial(int level, int query) {
  const AttentionPartials all = at(level);
  return {all.max + query, all.sum + query,
          all.accumulators + query * head_dim_};
}

void AttentionRunner::Run(const AttentionUnit& unit,
                          AttentionScratch& scratch) const {
  uint32_t pending[kMaxQueries] = {};
  scratch.Reserve(kv_.head_dim);
  RunChunks(unit, 0, unit.end_chunk, scratch, pending);
  for (int q = 0; q < unit.num_queries(); ++q) {
    Emit(unit, q, scratch.partial(Fold(q, scratch, pending[q]), q));
  }
}

void AttentionRunner::RunPiece(const AttentionUnit& unit, int32_t piece,
                               int log2_chunks, AttentionScratch& scratch,
                               float* results) const {
  uint32_t pending[kMaxQueries] = {};
  scratch.Reserve(kv_.head_dim);
  const int32_t begin = piece << log2_chunks;
  const int32_t end = std::min(begin + (1 << log2_chunks), unit.end_chunk);
  RunChunks(unit, begin, end, scratch, pending);
  for (int q = 0; q < unit.num_queries(); ++q) {
    float* to = results + q * (kv_.head_dim + 2);
    // A sum of zero says that the query sees nothing of this piece: with a
    // visible position it is at least Exp(0).
    to[1] = 0.0f;
    if (pending[q] == 0) continue;
    Copy(scratch.partial(Fold(q, scratch, pending[q]), q),
         {to, to + 1, to + 2});
  }
}

void AttentionRunner::JoinPieces(const AttentionUnit& unit, int32_t num_pieces,
                                 AttentionScratch& scratch,
                                 const float* results) const {
  scratch.Reserve(kv_.head_dim);
  for (int q = 0; q < unit.num_queries(); ++q) {
    uint32_t pending = 0;
    for (int32_t piece = 0; piece < num_pieces; ++piece) {
      const float* from =
          results + piece * PieceSize() + q * (kv_.head_dim + 2);
      if (from[1] == 0.0f) continue;
      const Partial node = scratch.partial(AttentionScratch::kChunkLevel, q);
      *node.max = from[0];
      *node.sum = from[1];
      std::copy_n(from + 2, kv_.head_dim, node.accumulator);
      Climb(piece, q, scratch, pending);
    }
    Emit(unit, q, scratch.partial(Fold(q, scratch, pending), q));
  }
}

AttentionArgs AttentionRunner::ArgsOf(const AttentionUnit& unit,
                                      AttentionScratch& scratch) const {
  const int64_t head_dim = kv_.head_dim;
  const int64_t offset =
      queries_.kv_heads[unit.head] * kv_.block_tokens * head_dim;
  AttentionArgs args = {
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
    std::memcpy(scratch.queries() + at * head_dim,
                queries_.q.row(t) + unit.head * head_dim,
                static_cast<size_t>(unit.num_heads * head_dim) * sizeof(float));
    std::fill_n(args.first + at, unit.num_heads, first);
    std::fill_n(args.last + at, unit.num_heads, position);
  }
  return args;
}

void AttentionRunner::RunChunks(const AttentionUnit& unit, int32_t begin,
                                int32_t end, AttentionScratch& scratch,
                                uint32_t* pending) const {
  const AttentionArgs args = ArgsOf(unit, scratch);
  for (int32_t chunk = std::max(begin, unit.first_chunk); chunk < end;
       ++chunk) {
    ops_.attention_chunk(args, chunk,
                         scratch.at(AttentionScratch::kChunkLevel));
    for (int q = 0; q < args.num_queries; ++q) {
      if (args.first[q] / kChunk <= chunk && chunk <= args.last[q] / kChunk) {
        Climb(chunk - begin, q, scratch, pending[q]);
      }
    }
  }
}

// left = left joined with right, in that order.
void AttentionRunner::Join(const Partial& left, const Partial& right) const {
  const float max = std::max(*left.max, *right.max);
  const float ea = Exp(*left.max - max);
  const float eb = Exp(*right.max - max);
  *left.max = max;
  ops_.join_scaled(left.sum, ea, right.sum, eb, 1);
  ops_.join_scaled(left.accumulator, ea, right.accumulator, eb, kv_.head_dim);
}

void AttentionRunner::Copy(const Partial& from, const Partial& to) const {
  *to.max = *from.max;
  *to.sum = *from.sum;
  std::copy_n(from.accumulator, kv_.head_dim, to.accumulator);
}

// Puts leaf `index`, at kChunkLevel, into the tree: as a right child it is
// joined with its left sibling, as long as that makes a right child.
void AttentionRunner::Climb(int32_t index, int query, AttentionScratch& scratch,
                            uint32_t& pending) const {
  int level = 0;
  int source = AttentionScratch::kChunkLevel;
  for (; (index >> level) & 1; ++level) {
    if ((pending >> level & 1) == 0) continue;  // the left sibling is masked
    Join(scratch.partial(level, query), scratch.partial(source, query));
    pending &= ~(1u << level);
    source = level;
  }
  Copy(scratch.partial(source, query), scratch.partial(level, query));
  pending |= 1u << level;
}

// Joins what is left, the youngest nodes first; returns the root's level.
int AttentionRunner::Fold(int query, AttentionScratch& scratch,
                          uint32_t pending) const {
  int level = std::countr_zero(pending);
  for (pending &= pending - 1; pending != 0; pending &= pending - 1) {
    const int left = std::countr_zero(pending);
    Join(scratch.partial(left, query), scratch.partial(level, query));
    level = left;
  }
  return level;
}

// Joins the sink and writes the query's output.
void AttentionRunner::Emit(const AttentionUnit& unit, int query,
                           const Partial& all) const {
  const int64_t token = unit.token + query / unit.num_heads;
  const int64_t head = unit.head + query % unit.num_heads;
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

}  // namespace sluice::kernels::cpu
