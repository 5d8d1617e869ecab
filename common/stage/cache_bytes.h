#ifndef SLUICE_COMMON_STAGE_CACHE_BYTES_H_
#define SLUICE_COMMON_STAGE_CACHE_BYTES_H_

#include <cstdint>
#include <vector>

#include "common/device/memory.h"
#include "common/model/stage_weights.h"
#include "common/model_config/model_config.h"
#include "common/model_config/rank_plan.h"

namespace sluice {

// Returns the bytes of one block in all layers of a KV group and all ranks.
uint64_t BytesPerBlock(const StageRange& range, const ModelConfig& config,
                       const std::vector<RankPlan>& plans, ElementType type);

// Returns the bytes of one block of states in all layers and ranks.
uint64_t BytesPerState(const StageRange& range,
                       const std::vector<RankPlan>& plans);

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_CACHE_BYTES_H_
