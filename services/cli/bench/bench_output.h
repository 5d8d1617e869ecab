#ifndef SLUICE_SERVICES_CLI_BENCH_BENCH_OUTPUT_H_
#define SLUICE_SERVICES_CLI_BENCH_BENCH_OUTPUT_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/tools/load/load_summary.h"
#include "services/cli/bench/bench_options.h"

namespace sluice::cli {

// How prompts were made, for the report.
struct BenchNotes {
  std::string prompt_kind;
  bool exact_lengths = false;
};

// Returns a run's progress: "[####....] 5/10 requests, 2 in flight, ..".
std::string ProgressLine(const load::LoadOptions& load,
                         const load::LoadProgress& progress);

// Returns the table for a terminal.
std::string SummaryText(const BenchOptions& options, const BenchNotes& notes,
                        const load::LoadSummary& summary);

// Returns {"config", "summary", "requests": [..]}; times in milliseconds.
std::string ResultJson(const BenchOptions& options, const BenchNotes& notes,
                       const load::LoadSummary& summary,
                       const load::LoadResult& result);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_BENCH_OUTPUT_H_
