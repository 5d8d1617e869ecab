#ifndef SLUICE_KERNELS_CPU_OPS_H_
#define SLUICE_KERNELS_CPU_OPS_H_

#include <cstdint>

#include "kernels/weight_type.h"

namespace sluice::kernels::cpu {

// What one instruction set offers the ops: plain structs and functions on
// pointers, single-threaded. This header is compiled with every instruction
// set's flags, so nothing in it, nor in what it includes, may be an inline
// function or a template: the linker would be free to keep the copy that an
// older CPU cannot run.

// Positions per attention partial, as attention.h's kAttentionChunk.
constexpr int kChunk = 256;
// Query columns that share one walk over keys and values.
constexpr int kMaxQueries = 48;
// Rows that a tile of a product has at most.
constexpr int kMaxTileRows = 4;
// Shards of a product that one call can join.
constexpr int kMaxShards = 64;
// Logits of a piece, as sampling.h's kLogitsPiece.
constexpr int kPiece = 256;

// A weight's rows, packed one behind the other, in the type of the WeightOps
// that read them.
struct WeightRows {
  const void* data;
  int64_t cols;
};

struct MatMulOut {
  float* y;
  int64_t stride;
};

struct LeafRange {
  int32_t begin;
  int32_t end;
};

// Rows [row_begin, row_end) of w times every token: matmul.h's products, a
// plain one being one of a single shard. outputs[i] joins leaves nodes[i].
struct MatMulArgs {
  const float* x;
  int64_t x_stride;
  int64_t tokens;
  WeightRows w;
  int64_t row_begin;
  int64_t row_end;
  const float* bias;      // [rows] or null
  const int32_t* bounds;  // [num_shards + 1]
  int32_t num_shards;
  int32_t num_outputs;
  const LeafRange* nodes;
  const MatMulOut* outputs;
  // For packed columns: tokens_per_block times the sum over shards of their
  // columns rounded up to 16.
  float* scratch;
  int64_t tokens_per_block;
  // Of types in runs of codes: for kMaxTileRows rows of the weight, widened.
  float* wide;
};

// Queries of one kv head that walk the same block table. `queries` is
// [num_queries, head_dim]; where lanes are queries [head_dim, kMaxQueries],
// zero behind the last query.
struct AttentionArgs {
  const void* keys;      // of this kv head in block 0
  const void* values;    // same
  int64_t block_stride;  // elements (Q8_0: bytes) from a block to the next
  const int32_t* table;  // block ids of the sequence
  int64_t block_tokens;  // divides kChunk
  int64_t head_dim;      // of queries and keys, and from a token's to the next
  int64_t value_dim;     // of values
  float scale;
  float soft_cap;       // of scores; 0: none
  int32_t num_queries;  // <= kMaxQueries
  const float* queries;
  int32_t first[kMaxQueries];  // first visible position
  int32_t last[kMaxQueries];   // last visible position
  int32_t begin;               // the first of the first
  int32_t end;                 // behind the last of the last
  // Q8_0: the scales of the chunk's values, [kChunk, head_dim / 32].
  const float* value_scales;
};

// Partials of one chunk or of a node of the tree over chunks. seen[q] is 0
// where query q sees nothing of it and has no partial, otherwise 1. seen, max
// and sum are [kMaxQueries]; accumulators are [num_queries, value_dim], where
// lanes are queries [value_dim, kMaxQueries]. `scores` and `packed` are
// scratch: [kMaxQueries, kChunk] and [num_queries, head_dim rounded up to 16].
struct AttentionPartials {
  float* seen;
  float* max;
  float* sum;
  float* accumulators;
  float* scores;
  float* packed;
};

// Exp((x - max) * scale), as sampling.h's Softening.
struct WeightRule {
  float max;
  float scale;
};

// Logits with their ids; see sampling.h's SelectNotBelow.
struct ChosenLogits {
  float* values;
  int32_t* ids;
};

// A causal convolution's row: y[i] = bias[i] + sum over j of taps[j * stride +
// i] * rows[j][i], fused, by rising j; then Silu of that. A null row is zero.
struct ConvolutionArgs {
  const float* const* rows;  // [num_taps], the token's own last
  const float* taps;
  int64_t stride;
  int32_t num_taps;
  const float* bias;  // null: zero
  bool silu;
  float* y;
  int64_t n;
};

// One token of a recurrence; see recurrence.h. Without a query there is no out.
struct RecurrenceToken {
  const float* key;
  const float* query;
  const float* value;
  float* out;
  float decay;
  float beta;
};

// `state` is [key_dim, state_columns] of Ops; columns from `columns` on are
// zero.
struct RecurrenceArgs {
  float* state;
  int64_t key_dim;
  int64_t columns;
  bool delta;
  const RecurrenceToken* tokens;
  int64_t num_tokens;
};

// What is done with weights of one type.
struct WeightOps {
  void (*matmul)(const MatMulArgs& args);
  // to[i] = element i of row `row`, exact.
  void (*widen)(const WeightRows& w, int64_t row, float* to);
};

// Attention over keys and values of one type. Fills the partials of chunk
// `chunk`: with lanes that are elements of a head, and with lanes that are
// queries. Q8_0 has the first alone, and finds the scores there.
struct AttentionOps {
  void (*chunk)(const AttentionArgs& args, int32_t chunk,
                const AttentionPartials& out);
  void (*lanes)(const AttentionArgs& args, int32_t chunk,
                const AttentionPartials& out);
};

struct Ops {
  const WeightOps* of_type;       // by plain WeightType
  const AttentionOps* attention;  // by WeightType up to kQ8_0
  int32_t tile_columns;           // tokens that a tile takes
  // The canonical dot product of matmul.h.
  float (*dot)(const float* a, const float* b, int64_t n);
  // y[i] = (x[i] * scale) * weight[i]
  void (*scale_multiply)(const float* x, float scale, const float* weight,
                         float* y, int64_t n);
  // (a[i], b[i]) = (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)), elements
  // `step` apart.
  void (*rotate)(float* a, float* b, const float* cos, const float* sin,
                 int64_t n, int64_t step);
  // y[i] = Silu(gate[i]) * up[i]
  void (*silu_multiply)(const float* gate, const float* up, float* y,
                        int64_t n);
  // y[i] = g / (1 + Exp(-1.702 g)) * (u + 1), g = min(gate[i], limit), u =
  // up[i] clamped to +-limit
  void (*clamped_swiglu)(const float* gate, const float* up, float limit,
                         float* y, int64_t n);
  // y[i] = GeluTanh(gate[i]) * up[i]; without the factor where `up` is null.
  void (*gelu_multiply)(const float* gate, const float* up, float* y,
                        int64_t n);
  // x[i] = cap * tanh(x[i] / cap)
  void (*soft_cap)(float* x, float cap, int64_t n);
  // y[i] = 1 / (1 + Exp(-x[i]))
  void (*sigmoid)(const float* x, float* y, int64_t n);
  // y[i] = Exp(x[i] - max)
  void (*exp_all)(const float* x, float max, float* y, int64_t n);
  // a[i] += b[i]
  void (*add)(float* a, const float* b, int64_t n);
  float (*exp)(float x);
  // Largest element, NaN left out; -inf if there is none.
  float (*max)(const float* x, int64_t n);
  // Canonical lane sum of Exp(x[i] - max).
  float (*sum_exp)(const float* x, float max, int64_t n);
  // sampling.h's passes over logits, piece by piece: the maxima (false if one
  // is NaN or +inf), the weights' lane sums, the weights.
  bool (*piece_maxima)(const float* x, int64_t n, float* maxima);
  void (*weight_sums)(const float* x, int64_t n, WeightRule rule, float* sums);
  void (*weights)(const float* x, int64_t n, WeightRule rule, float* y);
  // How many are chosen; `first` is the id of x[0].
  int64_t (*select_not_below)(const float* x, int64_t n, float least,
                              int32_t first, ChosenLogits out);
  int64_t (*count_above)(const float* x, int64_t n, float value);
  // From so many queries on lanes are queries.
  int32_t lane_queries;
  // left = left joined with right, as attention.h's contract has it; lanes
  // are queries.
  void (*join_lanes)(const AttentionArgs& args, const AttentionPartials& left,
                     const AttentionPartials& right);
  // a[i] = fma(b[i], eb, a[i] * ea)
  void (*join_scaled)(float* a, float ea, const float* b, float eb, int64_t n);
  void (*convolve)(const ConvolutionArgs& args);
  // Columns of a state that one call of `recur` takes.
  int64_t state_columns;
  void (*recur)(const RecurrenceArgs& args);
};

// Plain floats, Isa::kPortable but on x86-64, where only tests use it.
extern const Ops kScalarOps;
// Defined on x86-64 only. SSE2 is Isa::kPortable there.
extern const Ops kSse2Ops;
extern const Ops kAvx2Ops;
extern const Ops kAvx512Ops;
// Defined on AArch64 only.
extern const Ops kNeonOps;

}  // namespace sluice::kernels::cpu

#endif  // SLUICE_KERNELS_CPU_OPS_H_
