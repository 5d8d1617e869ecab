#ifndef SLUICE_SERVICES_CLI_STAGE_FACTS_H_
#define SLUICE_SERVICES_CLI_STAGE_FACTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/base/json.h"

namespace sluice::cli {

// What a gateway's /cluster tells of a stage. A value.
struct StageFacts {
  std::string state;
  std::string layers;  // "0-14"; empty: it has none
  std::optional<int64_t> steps;
  // The mean of its steps; nothing before the first step.
  std::optional<double> step_milliseconds;
  double share = 0;  // of the time that all stages computed
};

// Returns the stages of `page` (the JSON of /cluster) by address; nothing for a
// page without any.
std::map<std::string, StageFacts> StagesOf(const Json& page);

// Returns the columns "layers", "ms a step" and "of the time" of a stage, or
// dashes. `stage` may be null.
std::string FactColumns(const StageFacts* stage);
// Returns the heads of these columns, as wide.
std::string FactHeads();

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_STAGE_FACTS_H_
