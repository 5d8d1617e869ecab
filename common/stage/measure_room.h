#ifndef SLUICE_COMMON_STAGE_MEASURE_ROOM_H_
#define SLUICE_COMMON_STAGE_MEASURE_ROOM_H_

#include <cstdint>

#include "common/core/stage_room.h"
#include "common/model_config/model_config.h"
#include "common/stage/stage.h"
#include "common/weights/model_file.h"

namespace sluice {

// Returns what a stage with these options can hold of `available` bytes (0:
// unknown), whatever its layers: the memory, and what each layer takes there.
// Empty if not all of the model's weights are here.
StageRoom MeasureRoom(const StageOptions& options,
                      const weights::ModelFile& file, const ModelConfig& config,
                      uint64_t available);

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_MEASURE_ROOM_H_
