#ifndef SLUICE_COMMON_STAGE_STAGE_INFO_H_
#define SLUICE_COMMON_STAGE_STAGE_INFO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/stage_identity.h"
#include "common/core/step_plan.h"

namespace sluice {

// The facts of a stage, for its peers and its log.
struct StageInfo : StageIdentity {
  PlanLimits limits;
  // The part of `numerics` that hosts of experts share: KV's is left out.
  std::string product_numerics;
  // Positions that one sequence can have on this stage, and the reason: "the
  // model's", "--max-context", "what the KV cache holds; the model has 131072",
  // "the most that there can be; the model has 2097152". With a proposal where
  // memory is short and keys and values are F32.
  int32_t context = 0;
  std::string context_limit;
  std::vector<std::string> gpus;  // ids of those it computes on; none: a CPU
  uint64_t bytes_read = 0;        // of tensor data, while loading
  double load_seconds = 0;
  // H: hidden_size, of rows between stages, has what goes along for layers too.
  int32_t residual_size = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_STAGE_INFO_H_
