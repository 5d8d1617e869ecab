#ifndef SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_LAUNCH_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_LAUNCH_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime/launch_list.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

#include <atomic>

// How kernels are started, and what a device has room for.

namespace sluice::kernels::cuda {

// Blocks that a multiprocessor has room for at least: registers are shared.
template <typename K>
constexpr int LeastBlocks() {
  if constexpr (requires { K::kLeastBlocks; }) {
    return K::kLeastBlocks;
  } else {
    return 1;
  }
}

template <typename K>
__global__ void __launch_bounds__(K::kThreads, LeastBlocks<K>())
    Launched(const typename K::Args args) {
  Block block;
  // The next kernel of a graph may take the room that this one leaves.
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  if constexpr (!WaitsItself<K>()) block.WaitForInputs();
  K::Run(block, args);
}

// Of the current device. Every product asks, so a thread keeps the answer.
inline DeviceLimits LimitsOf(Stream) {
  thread_local int known = -1;
  thread_local DeviceLimits limits;
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess && device == known) return limits;
  int bytes = 0;
  int count = 0;
  int major = 0;
  int minor = 0;
  if (cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                             device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) !=
          cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                             device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                             device) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  known = device;
  const UnconfirmedSet asked = AskedUnconfirmed().set;
  limits = {static_cast<size_t>(bytes), count,
            major == 9 && minor == 0 && asked.Has(Unconfirmed::kWgmma), asked};
  return limits;
}

// Lets a kernel's blocks have as much shared memory as the device has for one:
// launches that are gathered begin later, and not all with the same. And every
// kernel divides a multiprocessor's memory alike: else the next one could not
// begin before the multiprocessor is empty. Every source that launches a kernel
// has one of its own, so nothing here is shared by sources.
template <typename K>
static void PrepareKernel() {
  static std::atomic<uint64_t> prepared{0};  // bit: the device
  int device = 0;
  cudaGetDevice(&device);
  const uint64_t bit = uint64_t{1} << (device % 64);
  if ((prepared.load(std::memory_order_relaxed) & bit) != 0) return;
  // An error is the launch's too.
  cudaFuncSetAttribute(Launched<K>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(LimitsOf(nullptr).shared_bytes));
  cudaFuncSetAttribute(Launched<K>,
                       cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
  prepared.fetch_or(bit);
}

template <typename K>
static void Launch(Stream stream, int64_t blocks, size_t shared_bytes,
                   const typename K::Args& args) {
  if (blocks == 0) return;
  PrepareKernel<K>();
  if (launch_sink != nullptr && launch_sink->stream == stream) {
    launch_sink->list.AddOf({reinterpret_cast<const void*>(&Launched<K>),
                             blocks, K::kThreads, shared_bytes},
                            args);
    return;
  }
  Launched<K>
      <<<static_cast<unsigned>(blocks), K::kThreads, shared_bytes, stream>>>(
          args);
}

}  // namespace sluice::kernels::cuda

#endif  // __CUDACC__

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_LAUNCH_H_
