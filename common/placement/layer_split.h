#ifndef SLUICE_COMMON_PLACEMENT_LAYER_SPLIT_H_
#define SLUICE_COMMON_PLACEMENT_LAYER_SPLIT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/layer_range.h"

namespace sluice {

struct LayerLoads;

// Splits the layers over `num_stages` stages, in order, at least one layer
// each. The largest share of bytes in memory is as small as possible; among
// those splits the shares are as even as possible (least sum of squares); among
// those, earlier stages are longer. So equal layers on equal stages are split
// by count. `memory`: bytes per stage, all positive; empty: equal. The same
// arguments give the same split on every machine. INVALID_ARGUMENT for fewer
// layers than stages or for memory of another number of stages;
// RESOURCE_EXHAUSTED names the stage that does not fit, and both sizes.
StatusOr<std::vector<LayerRange>> SplitLayers(
    const LayerLoads& loads, int32_t num_stages,
    std::span<const uint64_t> memory = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_PLACEMENT_LAYER_SPLIT_H_
