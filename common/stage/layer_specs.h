#ifndef SLUICE_COMMON_STAGE_LAYER_SPECS_H_
#define SLUICE_COMMON_STAGE_LAYER_SPECS_H_

#include <cstdint>
#include <span>

#include "common/device/layer_spec.h"
#include "common/model/decoder_layer.h"
#include "common/model_config/model_config.h"
#include "common/model_config/rank_plan.h"

// What a model's config says of layers, as a rank's device is told.
namespace sluice {

// Returns a layer's spec on the rank with `share` of it; `ropes` are the
// config's, on the rank's device.
LayerSpec SpecOf(const LayerConfig& layer, const LayerShare& share,
                 std::span<const RopeHandle> ropes);

// Returns whether a long-context RoPE has the frequencies of contexts above the
// original's, where the longest context asked for is `asked`.
bool IsLongRope(const RopeConfig& rope, int32_t asked);
// Returns a RoPE of up to `positions`. A long-context RoPE has the frequencies
// of `asked`, the longest context that was asked for, whatever the length of a
// sequence and the stage's memory: all stages and all chunks agree.
RopeSpec RopeOf(const RopeConfig& rope, int64_t positions, int32_t asked);

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_LAYER_SPECS_H_
