#ifndef SLUICE_COMMON_DEVICE_CUDA_CUDA_SAMPLER_H_
#define SLUICE_COMMON_DEVICE_CUDA_CUDA_SAMPLER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "common/device/backend.h"
#include "common/device/cuda/cuda_memory.h"
#include "kernels/cuda/shared/sampling.h"
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
        results_(runtime),
        drawn_(runtime) {}

  // Makes room for steps of `rows` logits rows.
  void Begin(int64_t rows) { drawn_.AtLeast<int32_t>(rows); }
  // Puts the tokens that the step before draws into those that name them; see
  // StepInputs::token_ids.
  void TakeDrawn(int32_t* token_ids, int64_t count);
  // Enqueues Backend::Sample. Answers are INTERNAL until Collect.
  void Enqueue(kernels::ConstMatrix logits, int32_t begin,
               std::span<const RowTask> asked,
               std::span<StatusOr<TokenResult>> answers);
  // Enqueues whose answers are not filled.
  size_t pending() const { return batches_.size(); }
  // Fills the answers of the first `count` of those; the runtime has waited for
  // them.
  void Collect(size_t count);

 private:
  // One Enqueue: what the device reads and writes on the host.
  struct Batch {
    std::vector<std::byte> upload;
    std::vector<kernels::cuda::SampleResult> results;
    std::span<StatusOr<TokenResult>> answers;
    // Of the results behind those of the answers: the answer each belongs to.
    std::vector<size_t> owners;
  };

  kernels::cuda::Runtime& runtime_;
  GrowingMemory tasks_;  // an upload: tasks, then their lists
  GrowingMemory rows_;
  GrowingMemory results_;
  GrowingMemory drawn_;  // the token of each logits row, of the latest step
  std::deque<std::unique_ptr<Batch>> batches_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_CUDA_SAMPLER_H_
