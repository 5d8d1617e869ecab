#ifndef SLUICE_COMMON_MODEL_CONFIG_LAYER_RANGE_H_
#define SLUICE_COMMON_MODEL_CONFIG_LAYER_RANGE_H_

#include <cstdint>

namespace sluice {

// Layers [first, last) of a model.
struct LayerRange {
  int32_t first = 0;
  int32_t last = 0;
  bool operator==(const LayerRange&) const = default;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_LAYER_RANGE_H_
