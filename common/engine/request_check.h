#ifndef SLUICE_COMMON_ENGINE_REQUEST_CHECK_H_
#define SLUICE_COMMON_ENGINE_REQUEST_CHECK_H_

#include <cstdint>

#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/step_plan.h"

namespace sluice {

// Positions of the longest sequence that the KV cache holds alone: whatever
// its windowed groups need at once counts beside the first one's blocks.
int64_t MaxPositions(const PlanLimits& limits);

// INVALID_ARGUMENT unless a sequence of so many tokens could ever run on a
// pipeline of these limits, alone in its pool.
Status CheckFits(int64_t num_prompt_tokens, int64_t max_tokens,
                 const PlanLimits& limits);

// INVALID_ARGUMENT naming the field, its limit and its value.
Status CheckRequest(const GenerateRequest& request, const PlanLimits& limits);

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_REQUEST_CHECK_H_
