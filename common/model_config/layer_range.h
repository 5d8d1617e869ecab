#ifndef SLUICE_COMMON_MODEL_CONFIG_LAYER_RANGE_H_
#define SLUICE_COMMON_MODEL_CONFIG_LAYER_RANGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace sluice {

// Layers [first, last) of a model.
struct LayerRange {
  int32_t first = 0;
  int32_t last = 0;
  bool operator==(const LayerRange&) const = default;
};

// Parses "first-last[,first-last...]", both ends included, as options take
// layers: "0-7,8-29" is [0, 8) and [8, 30). INVALID_ARGUMENT for other text,
// and for a range that does not begin behind the one before it.
StatusOr<std::vector<LayerRange>> ParseLayerRanges(std::string_view text);

// Returns the text of ranges.
std::string ToText(const std::vector<LayerRange>& ranges);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_LAYER_RANGE_H_
