#ifndef SLUICE_COMMON_MODEL_CONFIG_LAYER_SPLIT_H_
#define SLUICE_COMMON_MODEL_CONFIG_LAYER_SPLIT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"

namespace sluice {

struct LayerLoads;

// Layers [first, last) of a model.
struct LayerRange {
  int32_t first = 0;
  int32_t last = 0;
  bool operator==(const LayerRange&) const = default;
};

// Which layers each of `num_stages` stages has: all of them in order, at least
// one each. The largest share, of a stage's bytes in its memory, is as small as
// can be; of the splits that have it, the one with the most even shares (the
// least sum of squares); of those, earlier stages are the longer ones. So equal
// layers on equal stages are split by count, the earlier stages one longer.
// `memory`: bytes of each stage, all positive; empty: they are equal. The same
// arguments give the same split on every machine. INVALID_ARGUMENT if there are
// fewer layers than stages, or sizes for another number of stages;
// RESOURCE_EXHAUSTED if a stage's bytes do not fit, naming stage and sizes.
StatusOr<std::vector<LayerRange>> SplitLayers(
    const LayerLoads& loads, int32_t num_stages,
    std::span<const uint64_t> memory = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_LAYER_SPLIT_H_
