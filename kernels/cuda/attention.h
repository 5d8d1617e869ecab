#ifndef SLUICE_KERNELS_CUDA_ATTENTION_H_
#define SLUICE_KERNELS_CUDA_ATTENTION_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/attention.h"

namespace sluice::kernels::cuda {

// Device memory for the partials of a PagedAttention call. The host does not
// know positions, so it says how many chunks the longest sequence may have.
struct AttentionMemory {
  float* floats = nullptr;  // AttentionFloats
  int32_t max_chunks = 0;   // position / kAttentionChunk + 1 at most
  // 1: the tokens are of runs of one sequence, too long to be decoded; 0: they
  // may be of a sequence each. Bits depend on neither.
  int32_t in_runs = 0;
};

// Floats for `tokens` tokens of `heads` heads.
inline int64_t AttentionFloats(int64_t tokens, int64_t heads, int64_t head_dim,
                               int32_t max_chunks) {
  return tokens * heads * max_chunks * (head_dim + 2);
}

// attention.h's PagedAttention on a stream, with its contract and its bits. All
// memory is the device's.
void PagedAttention(Stream stream, const AttentionQueries& queries,
                    const KvView& kv, const AttentionMemory& memory,
                    Matrix out);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_ATTENTION_H_
