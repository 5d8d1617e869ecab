#ifndef SLUICE_SERVICES_CLI_LAYER_TABLE_H_
#define SLUICE_SERVICES_CLI_LAYER_TABLE_H_

#include <cstdint>
#include <string>

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

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_LAYER_TABLE_H_
