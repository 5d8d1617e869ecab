#ifndef SLUICE_KERNELS_CUDA_SHARED_ATTENTION_MEMORY_H_
#define SLUICE_KERNELS_CUDA_SHARED_ATTENTION_MEMORY_H_

#include <cstdint>

namespace sluice::kernels::cuda {

// Device memory for the partials of a call of either numerics' attention. The
// host does not know positions, so it says how many chunks the longest sequence
// may have.
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

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_ATTENTION_MEMORY_H_
