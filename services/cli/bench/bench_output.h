#ifndef SLUICE_SERVICES_CLI_BENCH_BENCH_OUTPUT_H_
#define SLUICE_SERVICES_CLI_BENCH_BENCH_OUTPUT_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "services/cli/bench/bench_options.h"
#include "services/cli/bench/bench_summary.h"

namespace sluice::cli {

// How prompts were made, and the rest of what a reader must know.
struct BenchNotes {
  std::string prompt_kind;
  bool exact_lengths = false;
};

// "[####....] 5/10 requests, 2 in flight, ..": how far a run is.
std::string ProgressLine(const LoadOptions& load, const LoadProgress& progress);

// The table for a terminal.
std::string SummaryText(const BenchOptions& options, const BenchNotes& notes,
                        const BenchSummary& summary);

// {"config", "summary", "requests": [..]}; times in milliseconds.
std::string ResultJson(const BenchOptions& options, const BenchNotes& notes,
                       const BenchSummary& summary, const LoadResult& result);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_BENCH_OUTPUT_H_
