#ifndef SLUICE_COMMON_PLACEMENT_LAYER_RESPLIT_H_
#define SLUICE_COMMON_PLACEMENT_LAYER_RESPLIT_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/core/stage_identity.h"

namespace sluice {

// A process that is to have a part of the layers.
struct SplitPart {
  const StageRoom* room = nullptr;  // empty: it has `held`, or no part
  StagePlace held;                  // the layers that it has now; may be empty
};

// A split of the layers over processes, in their order.
struct LayerResplit {
  std::vector<StagePlace> places;
  // Weights that processes with other layers than now have to load.
  uint64_t loaded_bytes = 0;
};

// The most layers of a model that ResplitLayers takes.
inline constexpr int32_t kMaxResplitLayers = 512;
// The largest part of a split may be so many times that of the most even one,
// if less has to be loaded for it.
inline constexpr double kResplitSlack = 1.25;

// Splits a model's `num_layers` over `parts`, in their order, at least one
// each, within the memory of each. Of the splits whose largest part is at most
// kResplitSlack times the smallest possible, the one with the fewest bytes to
// load; of those the one with the smallest largest part, then the most even one
// (least sum of squares), then the one with longer earlier parts. A part's size
// is its bytes, or its share of its memory if all parts have a memory that was
// set. A process that keeps its layers loads nothing; one with other layers
// loads all of them. Equal arguments give the same split on every machine.
// RESOURCE_EXHAUSTED if no split fits, naming the memory; FAILED_PRECONDITION
// for more layers than kMaxResplitLayers, or fewer than parts.
StatusOr<LayerResplit> ResplitLayers(const std::vector<SplitPart>& parts,
                                     int32_t num_layers);

// Returns the weights that `part` has to load for `place`; 0: it holds them.
// RESOURCE_EXHAUSTED if they do not fit its memory, FAILED_PRECONDITION if it
// takes no other layers than it holds.
StatusOr<uint64_t> LoadFor(const SplitPart& part, const StagePlace& place);

}  // namespace sluice

#endif  // SLUICE_COMMON_PLACEMENT_LAYER_RESPLIT_H_
