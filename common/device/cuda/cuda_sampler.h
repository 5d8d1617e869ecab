#ifndef SLUICE_COMMON_DEVICE_CUDA_CUDA_SAMPLER_H_
#define SLUICE_COMMON_DEVICE_CUDA_CUDA_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/device/backend.h"
#include "common/device/cuda/cuda_memory.h"
#include "kernels/cuda/sampling.h"
#include "kernels/views.h"

namespace sluice {

// Samples logits rows on a device, with the results of common/sampling's
// Sampler. Used by one thread.
class CudaSampler {
 public:
  explicit CudaSampler(kernels::cuda::Runtime* runtime)
      : runtime_(*runtime),
        tasks_(runtime),
        rows_(runtime),
        results_(runtime) {}

  // Enqueues Backend::Sample. Answers are INTERNAL until Collect.
  void Enqueue(kernels::ConstMatrix logits, int32_t begin,
               std::span<const RowTask> tasks,
               std::span<StatusOr<TokenResult>> answers);
  // Fills the answers of all Enqueues so far; the runtime has been synced.
  void Collect();

 private:
  // One Enqueue: what the device reads and writes on the host.
  struct Batch {
    std::vector<std::byte> upload;
    std::vector<kernels::cuda::SampleResult> results;
    std::span<StatusOr<TokenResult>> answers;
  };

  kernels::cuda::Runtime& runtime_;
  GrowingMemory tasks_;  // an upload: tasks, then their lists
  GrowingMemory rows_;
  GrowingMemory results_;
  std::vector<std::unique_ptr<Batch>> batches_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_CUDA_SAMPLER_H_
