#ifndef SLUICE_KERNELS_CPU_BLOCK_OPS_H_
#define SLUICE_KERNELS_CPU_BLOCK_OPS_H_

#include <cstdint>

#include "kernels/block_format.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/wide_ops.h"

namespace sluice::kernels::cpu {

// What one instruction set offers products of quantised weights: plain structs
// and functions on pointers, single-threaded. As cpu/ops.h: no inline function
// and no template may stand here.

// One row of activations; block_matmul.h has the arithmetic.
struct QuantizeArgs {
  const float* x;
  int64_t cols;
  int32_t block;  // 32 or 256
  int8_t* codes;  // [cols]
  float* scales;  // [cols / block]
  int16_t* sums;  // [cols / 16]
};

// Rows [row_begin, row_end) of w, whose begin is a multiple of kGroupRows,
// times every token. outputs[i] joins leaves nodes[i].
struct BlockProductArgs {
  const int8_t* codes;  // [tokens, cols]
  const float* scales;  // [tokens, blocks]
  const int16_t* sums;  // [tokens, cols / 16]
  int64_t tokens;
  const uint8_t* packed;
  int64_t blocks;  // of a row
  int64_t row_begin;
  int64_t row_end;
  const float* bias;      // [rows] or null
  const int32_t* bounds;  // [num_shards + 1], in blocks
  int32_t num_shards;
  int32_t num_outputs;
  const LeafRange* nodes;
  const MatMulOut* outputs;
  // For the packed columns of tokens_per_block tokens, 64-byte aligned:
  // BlockKernel::column_words words per token and block.
  uint32_t* scratch;
  int64_t tokens_per_block;
};

// Attention's keys: groups of sixteen Q8_0 rows, each at an address of its own,
// times every query. scores[q * stride + 16 * group + row] = the product of
// block_matmul.h with one shard, times `scale`.
struct BlockScoreArgs {
  // Its codes, scales, sums, tokens, blocks and scratch alone.
  BlockProductArgs queries;
  const uint8_t* const* groups;  // [num_groups]
  const uint8_t* const* next;  // [num_groups], fetched meanwhile; a group each
  int64_t num_groups;
  float scale;
  float* scores;
  int64_t stride;
};

struct BlockKernel {
  void (*product)(const BlockProductArgs& args);
  int32_t column_words;
};

struct BlockOps {
  // False if x has a NaN or an infinity.
  bool (*quantize)(const QuantizeArgs& args);
  void (*score)(const BlockScoreArgs& args);
  // F16 to F32, a multiple of sixteen.
  void (*widen_halves)(const uint8_t* halves, int64_t n, float* to);
  int32_t tile_columns;  // tokens that a tile takes
  BlockKernel of_format[kNumBlockFormats];
  const WideOps* wide;  // products of widened blocks
};

// One lane, DotIsa::kPortable but on x86-64, where only tests use it.
extern const BlockOps kScalarBlockOps;
// Defined on x86-64 only. SSE2 is DotIsa::kPortable there.
extern const BlockOps kSse2BlockOps;
extern const BlockOps kAvx2BlockOps;
extern const BlockOps kAvxVnniBlockOps;
extern const BlockOps kAvx512BlockOps;
extern const BlockOps kAvx512VnniBlockOps;
// Defined on AArch64 only.
extern const BlockOps kNeonBlockOps;
extern const BlockOps kNeonDotBlockOps;
extern const BlockOps kNeonI8mmBlockOps;

}  // namespace sluice::kernels::cpu

#endif  // SLUICE_KERNELS_CPU_BLOCK_OPS_H_
