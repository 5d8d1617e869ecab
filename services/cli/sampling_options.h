#ifndef SLUICE_SERVICES_CLI_SAMPLING_OPTIONS_H_
#define SLUICE_SERVICES_CLI_SAMPLING_OPTIONS_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "services/cli/arguments.h"

namespace sluice::cli {

// Adds those that were given to `body` by their names in the API; what is
// left out takes the model's defaults.
Status AddSampling(const Arguments& arguments, Json& body);

// Writes model output to stdout at once, without control characters that
// would drive the terminal.
void PrintOutput(std::string_view text);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_SAMPLING_OPTIONS_H_
