#ifndef SLUICE_COMMON_TOOLS_LOAD_LOAD_SUMMARY_H_
#define SLUICE_COMMON_TOOLS_LOAD_LOAD_SUMMARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/tools/load/load_generator.h"

namespace sluice::load {

// A summary of measurements. All zero without measurements.
struct Summary {
  std::vector<double> values;  // until they are summed up
  size_t count = 0;
  double mean = 0, deviation = 0;  // of the population
  double min = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

// Returns the value below which `percent` of `sorted` (ascending, not empty)
// lies, linear between neighbours: rank percent / 100 * (n - 1), as numpy's
// default.
double Percentile(const std::vector<double>& sorted, double percent);

Summary Summarize(std::vector<double> values);

// Limits of goodput, in milliseconds.
struct ServiceLevel {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
  // Parses "ttft=500,tpot=50,e2e=8000", or some of these.
  static StatusOr<ServiceLevel> Parse(std::string_view text);
  bool IsKeptBy(const RequestRecord& record) const;
};

// Failures of one kind.
struct Failure {
  int64_t count = 0;
  std::string example;  // the first one's message
};

// The figures of a run, in milliseconds and per second of the window. The
// window begins with the first request; it lasts as long as requests are sent
// (--duration), or until the last answer ends (--requests).
struct LoadSummary {
  double window_s = 0;
  int64_t requests = 0, done = 0;
  std::map<std::string, Failure>
      failures;           // by outcome, with the status for HTTP errors
  Summary refused_ms;     // the time of a 429
  Summary retry_after_s;  // the server's Retry-After

  Summary ttft, itl, tpot, e2e, longest_gap;  // of answered requests
  Summary lateness;                           // of all requests
  double requests_per_s = 0;
  double input_tokens_per_s = 0, output_tokens_per_s = 0;
  double computed_input_tokens_per_s = 0;  // input without cached tokens
  double mean_in_flight = 0;
  int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  Summary prompt_lengths, output_lengths;
  std::optional<double> goodput_per_s, goodput_share;

  std::string token_source;  // of the token counts
  double cpu_share = 0;
  bool interrupted = false;
};

// Returns the figures. `duration` 0: the window ends with the last answer.
LoadSummary Summarize(const LoadResult& result, Duration duration,
                      const std::optional<ServiceLevel>& level);

}  // namespace sluice::load

#endif  // SLUICE_COMMON_TOOLS_LOAD_LOAD_SUMMARY_H_
