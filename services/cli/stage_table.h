#ifndef SLUICE_SERVICES_CLI_STAGE_TABLE_H_
#define SLUICE_SERVICES_CLI_STAGE_TABLE_H_

#include <cstdint>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/model_config/layer_loads.h"

namespace sluice::cli {

// How SplitLayers splits a model, for people: one line per stage with its
// layers (as sluice-stage's --layers takes them), its weights and KV cache,
// and what part of `memory`, if that is given. SplitLayers' errors.
StatusOr<std::string> StageTable(const LayerLoads& loads, int32_t num_stages,
                                 std::span<const uint64_t> memory);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_STAGE_TABLE_H_
