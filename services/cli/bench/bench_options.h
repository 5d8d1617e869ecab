#ifndef SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
#define SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "services/cli/bench/bench_summary.h"
#include "services/cli/bench/load_generator.h"
#include "services/cli/bench/workload.h"
#include "services/cli/cluster_file.h"

namespace sluice::cli {

// All that the command line of `sluice bench` says.
struct BenchOptions {
  EndpointOptions endpoint;
  LoadOptions load;
  WorkloadOptions workload;
  std::optional<int64_t> requests, warmup, seed;
  double duration_s = 0, timeout_s = 600;
  std::optional<ServiceLevel> service_level;
  std::string json_path;  // empty: not written
  bool plain = false;     // OpenAI's fields alone
  bool quiet = false;     // no progress
};

void AddBenchOptions(CLI::App& app, BenchOptions& options);

// Fills in what was not given; asks the gateway for its model where none is
// named. NOT_FOUND or UNAVAILABLE if it cannot be asked.
Status CompleteBenchOptions(BenchOptions& options);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
