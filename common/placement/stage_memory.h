#ifndef SLUICE_COMMON_PLACEMENT_STAGE_MEMORY_H_
#define SLUICE_COMMON_PLACEMENT_STAGE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/model_config/model_config.h"
#include "common/placement/layer_loads.h"

namespace sluice::placement {

// A process without weights and sequences, with its share of libraries, as
// tests/benchmarks/plan_against_runs.py has seen it.
inline constexpr uint64_t kProcessBytes = 14'000'000;

// Returns what processes may take of a machine's memory.
uint64_t UsableBytes(uint64_t memory);
// Returns the bytes of a stage's activations, and of the process.
uint64_t WorkBytes(const ModelConfig& config, const LayerLoadOptions& loads,
                   bool is_last);

// What stages with any layers need, for a KV cache of a size. A value.
class StageMemoryNeeds {
 public:
  // `loads` with the blocks of the KV cache; `sequences` that it is for take
  // two blocks of states each.
  StageMemoryNeeds(const ModelConfig& config, LayerLoads loads,
                   const LayerLoadOptions& options, int64_t sequences);

  const LayerLoads& loads() const { return loads_; }
  uint64_t work(bool is_last) const { return is_last ? last_work_ : work_; }
  // Returns the bytes of a stage, activations and process included.
  uint64_t Of(const LayerRange& range) const;
  uint64_t Weights(const LayerRange& range) const;
  // Returns the part that keys and values take of what a stage of `memory`
  // bytes has left for them.
  double Crowding(const LayerRange& range, uint64_t memory) const;
  // Whether a stage may begin at a layer.
  bool MayBegin(int32_t layer) const;
  // Whether `stages` stages of `memory` bytes each hold the layers of `range`.
  bool Fit(const LayerRange& range, int32_t stages, uint64_t memory) const;
  // Cuts `range` into `stages` stages, the largest of which is as small as
  // possible; `range` has a layer for each.
  std::vector<LayerRange> Cut(const LayerRange& range, int32_t stages) const;

 private:
  size_t Index(int32_t first, int32_t last) const;

  LayerLoads loads_;
  uint64_t work_ = 0, last_work_ = 0;
  std::vector<uint64_t> bytes_, weights_, kv_;  // per first and last layer
};

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_STAGE_MEMORY_H_
