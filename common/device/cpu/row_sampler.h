#ifndef SLUICE_COMMON_DEVICE_CPU_ROW_SAMPLER_H_
#define SLUICE_COMMON_DEVICE_CPU_ROW_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/device/backend.h"
#include "common/sampling/sampler.h"
#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice {

// Samples a step's logits rows over the threads of a team; with fewer rows than
// threads it also splits each row. A result depends on its parameters and its
// row alone. Keeps its memory from step to step. Used by one thread.
class RowSampler {
 public:
  explicit RowSampler(const kernels::Context& context);

  // As Backend::Sample.
  void Run(kernels::ConstMatrix logits, int32_t begin,
           std::span<const RowTask> tasks,
           std::span<StatusOr<TokenResult>> answers);

 private:
  void RunWhole(std::span<const TokenTask> tasks,
                std::span<StatusOr<TokenResult>> answers);
  void RunSplit(std::span<const TokenTask> tasks,
                std::span<StatusOr<TokenResult>> answers);

  const kernels::Context context_;
  std::vector<Sampler> samplers_;  // one for each thread of the team
  std::vector<TokenTask> tasks_;   // with their logits
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_ROW_SAMPLER_H_
