#ifndef SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
#define SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/tools/load/load_generator.h"
#include "common/tools/load/load_summary.h"
#include "common/tools/load/workload.h"
#include "services/cli/cluster_file.h"

namespace sluice::cli {

// The command line of `sluice bench`.
struct BenchOptions {
  EndpointOptions endpoint;
  load::LoadOptions load;
  load::WorkloadOptions workload;
  std::optional<int64_t> requests, warmup, seed;
  double duration_s = 0, timeout_s = 600;
  std::optional<load::ServiceLevel> service_level;
  std::string json_path;  // empty: not written
  bool plain = false;     // OpenAI's fields alone
  bool quiet = false;     // no progress
};

void AddBenchOptions(CLI::App& app, BenchOptions& options);

// Fills in absent options; without a model asks the gateway for its own.
// NOT_FOUND or UNAVAILABLE without an answer.
Status CompleteBenchOptions(BenchOptions& options);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_BENCH_OPTIONS_H_
