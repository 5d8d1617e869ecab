#ifndef SLUICE_KERNELS_CPU_WIDE_OPS_H_
#define SLUICE_KERNELS_CPU_WIDE_OPS_H_

#include <cstdint>

#include "kernels/block_format.h"
#include "kernels/cpu/ops.h"

namespace sluice::kernels::cpu {

// What one instruction set offers products of widened blocks: plain structs and
// functions on pointers, single-threaded. As cpu/ops.h: no inline function and
// no template may stand here.

// Elements of a row that are widened at once, and the tokens that share them.
constexpr int kWideSpan = 256;
constexpr int kWideTokens = 64;
// F32 numbers of WideProductArgs::scratch: a span of a group, and for every
// token sixteen lane sums of it, and as many numbers for each shard.
constexpr int kWideScratch =
    kWideSpan * kGroupRows + kWideTokens * 16 * kGroupRows;
constexpr int kWideShardScratch = kWideTokens * kGroupRows;

// Rows [row_begin, row_end) of w, whose begin is a multiple of kGroupRows,
// times every token. outputs[i] joins leaves nodes[i].
struct WideProductArgs {
  const float* x;
  int64_t x_stride;
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
  // kWideScratch and for each shard kWideShardScratch, 64-byte aligned.
  float* scratch;
};

struct WideOps {
  void (*of_format[kNumBlockFormats])(const WideProductArgs& args);
};

// One lane, DotIsa::kPortable but on x86-64, where only tests use it.
extern const WideOps kScalarWideOps;
// Defined on x86-64 only. SSE2 is DotIsa::kPortable there.
extern const WideOps kSse2WideOps;
extern const WideOps kAvx2WideOps;
extern const WideOps kAvx512WideOps;
// Defined on AArch64 only.
extern const WideOps kNeonWideOps;

}  // namespace sluice::kernels::cpu

#endif  // SLUICE_KERNELS_CPU_WIDE_OPS_H_
