#ifndef SLUICE_KERNELS_CUDA_FAST_ATTENTION_H_
#define SLUICE_KERNELS_CUDA_FAST_ATTENTION_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/shared/attention_memory.h"
#include "kernels/rope.h"

namespace sluice::kernels::cuda {

// Query heads side by side that read one kv head.
struct HeadRun {
  int32_t kv_head;
  int32_t first;
  int32_t count;  // 1 to 8
};

// The runs of a list of kv heads, one entry per query head.
std::vector<HeadRun> HeadRunsOf(std::span<const int32_t> kv_heads);

// How a TilePagedAttention call is cut into blocks; the bits are the same for
// each way.
struct AttentionCut {
  const HeadRun* runs =
      nullptr;  // of the device, HeadRunsOf the queries' heads
  int32_t num_runs = 0;
  int32_t most_heads = 1;  // of a run
  // So many tokens after each other are mostly of one sequence, and read keys
  // and values together.
  int32_t tokens = 1;
  int32_t kv_heads = 0;  // kv heads 0 to kv_heads - 1 have a run each, or more
};

// Floats of AttentionMemory that TilePagedAttention needs for a token of
// `heads` heads: AttentionFloats or fewer.
int64_t TileAttentionFloats(int64_t heads, const KvView& kv,
                            const AttentionCut& cut, int32_t max_chunks);

// PagedAttention on matrix units, decode and chunks of prompts alike. Queries,
// keys, values and weights are rounded to BF16, sums are F32. What a query does
// not see has a weight of zero, which changes no sum. Pieces of 256 positions
// and sinks are joined as in PagedAttention. All memory is the device's; heads
// are multiples of 4 elements. The head's size alone says which of two ways a
// piece is computed:
//   64 or 128 elements (pages of 16 positions): queries are multiplied by the
//   scale and the logarithm of e before they are rounded; a score, a power of
//   2, is a chain of MultiplyTile over steps of 16 elements, which
//   attention_common.h lists, from +0. A piece is a chain over leaves of 64
//   positions: the maximum so far grows by the leaf's; sums so far are
//   multiplied by PowerOf2(old - new maximum); a weight is PowerOf2(score -
//   maximum so far). An element of the output goes on by MultiplyTile over the
//   leaf's four steps. Lane t of four adds the weights of positions 4t to 4t +
//   3 of each step, two steps and two steps, then both, fma onto the sum so
//   far; the four are joined by xor of 1 and 2 at the end.
//   others: a score is a chain over steps of 16 elements in order; a weight is
//   Exp(score - the piece's maximum); lane l of a warp adds the weights of
//   positions 2l, 2l + 1, 2l + 64, ... in F32, and lanes are joined by xor of
//   16, 8, 4, 2, 1; an element of the output is a chain over steps of 16
//   positions.
void TilePagedAttention(Stream stream, const AttentionQueries& queries,
                        const KvView& kv, const AttentionCut& cut,
                        const AttentionMemory& memory, Matrix out);

// RMS norms of heads; none if `weight` is null.
struct HeadNorm {
  const float* weight = nullptr;  // [head_dim]
  float eps = 0;
};

// Queries whose rows are [q, k, v] as a product left them, and what is done to
// those: RmsNormHeads of q and k, and RopeStoreKv (row_ops.h).
struct RopeQueries {
  AttentionQueries all;  // q: the first columns of the rows
  HeadNorm q_norm;
  HeadNorm k_norm;
  RopeStyle style = RopeStyle::kHalfSplit;
  RopeTable table;
};

// Does that, and TilePagedAttention of what it leaves, with the same bits in
// the same launch; the rows stay as they are. Every token is of a sequence of
// its own: no token reads what another one of the call stores. Keys and values
// of earlier positions are there since the step began. False, and nothing is
// done, where there is no such kernel, Unconfirmed::kRopeAttention is not asked
// for or two launches cost less.
bool TileRopeAttention(Stream stream, const RopeQueries& queries,
                       const KvView& kv, const AttentionCut& cut,
                       const AttentionMemory& memory, Matrix out);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_ATTENTION_H_
