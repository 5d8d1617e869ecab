#ifndef SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
#define SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_

#include <optional>
#include <string>

#include "common/base/status.h"
#include "services/cli/bench/bench_summary.h"
#include "services/cli/bench/load_generator.h"
#include "services/cli/bench/workload.h"
#include "services/cli/commands.h"

namespace sluice::cli {

// All that the command line of `sluice bench` says.
struct BenchOptions {
  LoadOptions load;
  WorkloadOptions workload;
  int64_t warmup = 0;  // requests before the clock starts
  std::optional<ServiceLevel> service_level;
  std::string csv_path, json_path, svg_path;  // empty: not written
  bool quiet = false;                         // no progress
};

// INVALID_ARGUMENT for a wrong command line; else what asking the gateway for
// its model gives.
StatusOr<BenchOptions> ParseBenchOptions(const Words& words);

// The text of `sluice bench --help`.
extern const char kBenchUsage[];

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
