#ifndef SLUICE_SERVICES_CLI_MODEL_TABLES_H_
#define SLUICE_SERVICES_CLI_MODEL_TABLES_H_

#include <cstdint>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/model_config/layer_loads.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"

namespace sluice::cli {

// "what" and megabytes, a line of what `sluice inspect` prints.
std::string BytesLine(const std::string& what, uint64_t bytes);

// What a model's layers take as they are stored, for people: a line for every
// run of layers that take the same bytes, with the bytes of each of them, and,
// of sparse layers, lines for the experts of a layer and for one of its
// `num_experts`. A file that stores layers in several formats has several
// runs. Empty for a model without layers.
std::string LayerTable(const ModelBytes& bytes, int32_t num_experts);

// How SplitLayers splits a model, for people: one line per stage with its
// layers (as sluice-stage's --layers takes them), its weights and KV cache,
// and what part of `memory`, if that is given. SplitLayers' errors.
StatusOr<std::string> StageTable(const LayerLoads& loads, int32_t num_stages,
                                 std::span<const uint64_t> memory);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_MODEL_TABLES_H_
