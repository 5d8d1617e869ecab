#ifndef SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_LAUNCH_H_
#define SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_LAUNCH_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime/launch_list.h"

// How kernels are started, and what a device has room for.

namespace sluice::kernels::cuda {

inline DeviceLimits LimitsOf(Stream stream) { return stream->limits(); }

// A kernel's address, and how its arguments are run.
template <typename K>
void RunBlocks(Stream stream, int64_t blocks, size_t shared_bytes,
               const void* bytes) {
  const auto* const args = static_cast<const typename K::Args*>(bytes);
  stream->RunWaiting({blocks, K::kThreads, shared_bytes}, [=](int thread) {
    Block block(stream, thread);
    if constexpr (!WaitsItself<K>()) block.WaitForInputs();
    K::Run(block, *args);
  });
}

// Runs K::Run(block, args) on every thread of `blocks` blocks of K::kThreads.
template <typename K>
void Launch(Stream stream, int64_t blocks, size_t shared_bytes,
            const typename K::Args& args) {
  if (blocks == 0) return;
  if (launch_sink != nullptr && launch_sink->stream == stream) {
    launch_sink->list.AddOf({reinterpret_cast<const void*>(&RunBlocks<K>),
                             blocks, K::kThreads, shared_bytes},
                            args);
    return;
  }
  stream->Enqueue([=] { RunBlocks<K>(stream, blocks, shared_bytes, &args); });
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_LAUNCH_H_
