#ifndef SLUICE_SERVICES_CLI_HEAT_MAP_H_
#define SLUICE_SERVICES_CLI_HEAT_MAP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace sluice::cli {

// How often each expert of each layer was asked. A value.
struct HeatMap {
  int32_t num_experts = 0;
  // By layer, by id: asks; nothing for experts that no host told of.
  std::map<int32_t, std::vector<std::optional<uint64_t>>> layers;
};

// Reads the answer of a host's /experts: `recent` counts, or those since its
// start. INVALID_ARGUMENT for anything else.
StatusOr<HeatMap> ParseHeat(const std::string& json, bool recent);

// Adds the asks of a further host: of a replica they add up.
// FAILED_PRECONDITION for another number of experts.
Status AddHeat(const HeatMap& more, HeatMap* heat);

// A row per layer, a character per expert (the hottest of several, if there
// are more than `columns`), from ' ' never to '@' the hottest of its layer,
// '?' unknown; behind it the asks, the active experts, and the hottest over
// the mean.
std::string DrawHeat(const HeatMap& heat, int columns);

// The same as a whole SVG document, a square per expert.
std::string DrawHeatSvg(const HeatMap& heat);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_HEAT_MAP_H_
