#ifndef SLUICE_KERNELS_CUDA_STREAMS_H_
#define SLUICE_KERNELS_CUDA_STREAMS_H_

#include <cuda_device/device.h>

#include <cstdint>

namespace sluice::kernels::cuda {

// Passes over device memory that do nothing else: what a device's bandwidth is
// measured with. Memory is 16-byte aligned; `floats` is a multiple of 4.

// Threads that a pass has at the most.
inline constexpr int64_t kStreamThreads = int64_t{1} << 21;

// Reads all of `from`; sums [kStreamThreads] = what each thread's add up to,
// 0 for a thread without any.
void ReadAll(Stream stream, const float* from, int64_t floats, float* sums);
// to = from.
void CopyAll(Stream stream, const float* from, int64_t floats, float* to);
// A kernel of one warp that does nothing.
void DoNothing(Stream stream);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_STREAMS_H_
