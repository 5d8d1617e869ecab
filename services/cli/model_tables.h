#ifndef SLUICE_SERVICES_CLI_MODEL_TABLES_H_
#define SLUICE_SERVICES_CLI_MODEL_TABLES_H_

#include <cstdint>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/layer_loads.h"

namespace sluice::cli {

// Returns a line of `sluice inspect`: "what" and megabytes.
std::string BytesLine(const std::string& what, uint64_t bytes);

// Returns a table of the stored bytes of a model's layers: a line for every run
// of layers with equal bytes, and, for sparse layers, lines for a layer's
// experts and for one of its `num_experts`. Files with several formats have
// several runs. Empty without layers.
std::string LayerTable(const ModelBytes& bytes, int32_t num_experts);

// Returns a table of SplitLayers' stages: layers (as sluice-stage's --layers),
// weights, KV cache, and their share of `memory`, if given. SplitLayers'
// errors.
StatusOr<std::string> StageTable(const LayerLoads& loads, int32_t num_stages,
                                 std::span<const uint64_t> memory);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_MODEL_TABLES_H_
