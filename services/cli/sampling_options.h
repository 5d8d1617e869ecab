#ifndef SLUICE_SERVICES_CLI_SAMPLING_OPTIONS_H_
#define SLUICE_SERVICES_CLI_SAMPLING_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/json_fwd.h"
#include "services/cli/command_line.h"

namespace sluice::cli {

// How an answer is sampled; what is not given takes the model's defaults.
struct SamplingOptions {
  std::optional<int64_t> max_tokens, min_tokens, top_k, seed;
  std::optional<double> temperature, top_p, min_p;
  std::optional<std::string> stop;
};
void AddSampling(CLI::App& app, SamplingOptions& options);

// Adds those that were given to `body` by their names in the API.
void AddSampling(const SamplingOptions& options, Json& body);

// Writes model output to stdout at once, without control characters that
// would drive the terminal.
void PrintOutput(std::string_view text);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_SAMPLING_OPTIONS_H_
