#ifndef SLUICE_TESTS_CUDA_MACHINE_PROBES_MEMORY_PASSES_H_
#define SLUICE_TESTS_CUDA_MACHINE_PROBES_MEMORY_PASSES_H_

#include <cuda_device/device.h>

#include <cstdint>

namespace sluice::kernels::cuda {

// Passes over device memory that do nothing else: what a device's bandwidth is
// measured with, and kernels that do little. Floats' memory is 16-byte aligned;
// `floats` is a multiple of 4.

// Threads that a pass has at the most.
inline constexpr int64_t kStreamThreads = int64_t{1} << 21;

// Reads all of `from`; sums [kStreamThreads] = what each thread's add up to,
// 0 for a thread without any.
void ReadAll(Stream stream, const float* from, int64_t floats, float* sums);
// to = from.
void CopyAll(Stream stream, const float* from, int64_t floats, float* to);
// A kernel of one warp that does nothing.
void DoNothing(Stream stream);
// to [blocks, 32] = 1 + from, row by row from the next row on: a block of a
// launch reads what another block of the launch before has written. What a
// launch costs is measured with it.
void PassOn(Stream stream, const uint32_t* from, uint32_t* to, int64_t blocks);

int Multiprocessors(Stream stream);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_PROBES_MEMORY_PASSES_H_
