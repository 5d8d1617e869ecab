#ifndef SLUICE_COMMON_MODEL_CONFIG_LAYER_FILES_H_
#define SLUICE_COMMON_MODEL_CONFIG_LAYER_FILES_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/layer_range.h"
#include "common/model_config/model_config.h"
#include "common/weights/model_file.h"

namespace sluice {

// Returns the names of the files, within the model's folder, that hold a tensor
// of the layers of `range`, of the embedding if it has the first layer, and of
// final norm and head if it has the last. An outline counts as its shard. In
// order, each once; none for an empty range.
StatusOr<std::vector<std::string>> FilesOfLayers(
    const ModelConfig& config, const weights::ModelFile& model,
    const LayerRange& range);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_LAYER_FILES_H_
