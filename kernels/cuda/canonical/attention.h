#ifndef SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_H_

#include <cuda_device/device.h>

#include "kernels/attention.h"
#include "kernels/cuda/shared/attention_memory.h"

namespace sluice::kernels::cuda {

// kernels/attention.h's PagedAttention on a stream, with its contract and its
// bits. All memory is the device's.
void PagedAttention(Stream stream, const AttentionQueries& queries,
                    const KvView& kv, const AttentionMemory& memory,
                    Matrix out);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_ATTENTION_H_
