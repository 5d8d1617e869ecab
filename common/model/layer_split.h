#ifndef SLUICE_COMMON_MODEL_LAYER_SPLIT_H_
#define SLUICE_COMMON_MODEL_LAYER_SPLIT_H_

#include <cstdint>

#include "common/base/status.h"

namespace sluice {

// Layers [first, last) of a model.
struct LayerRange {
  int32_t first = 0;
  int32_t last = 0;
  bool operator==(const LayerRange&) const = default;
};

// The share of stage `index` of `num_stages` when `num_layers` are split as
// evenly as can be; the earlier shares are the longer ones, by one layer.
// INVALID_ARGUMENT if there are fewer layers than stages, or no such stage.
inline StatusOr<LayerRange> EvenLayerRange(int32_t num_layers, int32_t index,
                                           int32_t num_stages) {
  if (num_stages < 1 || num_stages > num_layers) {
    return InvalidArgument(num_stages, " stages for ", num_layers,
                           " layers: 1 to ", num_layers, " are possible");
  }
  if (index < 0 || index >= num_stages) {
    return InvalidArgument("stage ", index, ": there are stages 0 to ",
                           num_stages - 1);
  }
  const int32_t each = num_layers / num_stages;
  const int32_t longer = num_layers % num_stages;
  const int32_t first = index * each + (index < longer ? index : longer);
  return LayerRange{first, first + each + (index < longer ? 1 : 0)};
}

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_LAYER_SPLIT_H_
