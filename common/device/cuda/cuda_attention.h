#ifndef SLUICE_COMMON_DEVICE_CUDA_CUDA_ATTENTION_H_
#define SLUICE_COMMON_DEVICE_CUDA_CUDA_ATTENTION_H_

#include <cstdint>

#include "common/device/backend.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/step_memory.h"
#include "kernels/cuda/canonical/attention.h"
#include "kernels/cuda/fast/attention.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/weight_type.h"

namespace sluice {

// Backend's operations on rows of heads on a device: norms, rotary positions,
// stored keys and values, attention, which a fast one has on matrix units. On
// the runtime's stream. The runtime and `inputs` must outlive it. Used by one
// thread.
class CudaAttention {
 public:
  CudaAttention(kernels::cuda::Runtime* runtime, StepMemory* inputs,
                kernels::WeightType kv_type, bool fast)
      : stream_(runtime->stream()),
        inputs_(*inputs),
        kv_type_(kv_type),
        fast_(fast),
        memory_(runtime) {}

  // See Backend; rows are all of the step.
  void RopeStoreKv(const AttentionSpec& spec, const HeadNorms& norms,
                   kernels::Matrix qkv, const LayerKv& kv);
  void Attention(const AttentionSpec& spec, kernels::ConstMatrix qkv,
                 const float* sinks, const LayerKv& kv, kernels::Matrix out);
  // False, and nothing is done, where the two are not one launch.
  bool RopeAttention(const AttentionSpec& spec, const HeadNorms& norms,
                     kernels::ConstMatrix qkv, const float* sinks,
                     const LayerKv& kv, kernels::Matrix out);

 private:
  // How a call of attention is cut, and its partials' memory.
  struct Pass {
    int64_t rows = 0;
    kernels::cuda::AttentionCut cut;
    kernels::cuda::AttentionMemory memory;
  };
  struct Rows {
    int64_t begin;
    int64_t count;
  };
  // Of the step's `tokens` tokens, those from `token` on.
  Pass NextPass(const AttentionSpec& spec, const kernels::KvView& kv,
                int64_t token, int64_t tokens);
  kernels::AttentionQueries QueriesOf(const AttentionSpec& spec,
                                      kernels::ConstMatrix qkv,
                                      const float* sinks, int32_t group,
                                      const Rows& rows);
  kernels::KvView ViewOf(const AttentionSpec& spec, const LayerKv& kv) const;

  const kernels::cuda::Stream stream_;
  StepMemory& inputs_;
  const kernels::WeightType kv_type_;
  const bool fast_;
  GrowingMemory memory_;  // of partials
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_CUDA_ATTENTION_H_
