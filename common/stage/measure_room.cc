#include "common/stage/measure_room.h"

#include <algorithm>
#include <utility>

#include "common/core/kv_groups.h"
#include "common/placement/layer_loads.h"
#include "common/weights/safetensors_outline.h"

namespace sluice {
namespace {

// The context for which a stage says that it has room with other layers, if it
// may choose: so many positions, or this part of the model's. Such a stage then
// takes as much as its memory allows.
constexpr int32_t kLeastContext = 1024;
constexpr int32_t kLeastContextPart = 4;

// Whether only outlines are here of some of the model's files.
bool LacksFiles(const weights::ModelFile& file) {
  return std::ranges::any_of(file.tensors(), [&](const auto& tensor) {
    const auto path = file.FileOf(tensor.name);
    return path.ok() && path->ends_with(weights::kOutlineSuffix);
  });
}

}  // namespace

StageRoom MeasureRoom(const StageOptions& options,
                      const weights::ModelFile& file, const ModelConfig& config,
                      uint64_t available) {
  if (LacksFiles(file)) return {};
  LayerLoadOptions least;
  least.weights = options.weights;
  least.kv_blocks = options.kv_blocks;
  least.max_context =
      options.max_context > 0
          ? options.max_context
          : std::clamp(config.max_position_embeddings / kLeastContextPart, 1,
                       kLeastContext);
  least.max_step_tokens = options.max_step_tokens;
  least.ranks = options.total_ranks();
  least.kv_type = options.kv_type;
  LayerLoads loads = LoadsOf(config, file, least);
  StageRoom room;
  room.memory = options.memory == 0 || available == 0
                    ? std::max(available, options.memory)
                    : std::min(available, options.memory);
  room.is_set = options.memory != 0;
  room.layers = std::move(loads.layers);
  for (size_t i = 0; i < loads.states.size(); ++i) {
    room.layers[i] += kLeastStateBlocks * loads.states[i];
  }
  room.kv = std::move(loads.kv);
  room.kv_groups = std::move(loads.kv_groups);
  room.embedding = loads.embedding;
  room.head = loads.head;
  room.tied = loads.tied ? loads.embedding : 0;
  room.tied_again = loads.tied_again;
  return room;
}

}  // namespace sluice
