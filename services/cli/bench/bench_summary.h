#ifndef SLUICE_SERVICES_CLI_BENCH_BENCH_SUMMARY_H_
#define SLUICE_SERVICES_CLI_BENCH_BENCH_SUMMARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "services/cli/bench/load_generator.h"

namespace sluice::cli {

// What is told of a set of measurements. All zero for an empty one.
struct Summary {
  size_t count = 0;
  double mean = 0, deviation = 0;  // of the population
  double min = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

// The value below which `percent` of `sorted` (ascending, not empty) lies,
// linear between neighbours: rank percent / 100 * (n - 1), as numpy's default.
double Percentile(const std::vector<double>& sorted, double percent);

Summary Summarize(std::vector<double> values);

// What a request must keep to count for goodput, in milliseconds.
struct ServiceLevel {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
  // "ttft=500,tpot=50,e2e=8000", any of them.
  static StatusOr<ServiceLevel> Parse(std::string_view text);
  bool IsKeptBy(const RequestRecord& record) const;
};

// Failures of one kind.
struct Failure {
  int64_t count = 0;
  std::string example;  // the first one's words
};

// The figures of a run. Times in milliseconds, rates per second of the window:
// from the first request on for as long as requests were sent (--duration),
// or until the last answer ended (--requests).
struct BenchSummary {
  double window_s = 0;
  int64_t requests = 0, done = 0;
  std::map<std::string, Failure> failures;  // by outcome, and status if HTTP
  Summary refused_ms;                       // how long a 429 took
  Summary retry_after_s;                    // what it asked for

  Summary ttft, itl, tpot, e2e, longest_gap;  // of requests that were done
  Summary lateness;                           // of every request sent
  double requests_per_s = 0;
  double input_tokens_per_s = 0, output_tokens_per_s = 0;
  double computed_input_tokens_per_s = 0;  // input less what a cache had
  double mean_in_flight = 0;
  int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  Summary prompt_lengths, output_lengths;
  std::optional<double> goodput_per_s, goodput_share;

  std::string token_source;  // of the counts
  double cpu_share = 0;
  bool interrupted = false;
};

// `duration` 0: the window ends with the last answer.
BenchSummary Summarize(const LoadResult& result, Duration duration,
                       const std::optional<ServiceLevel>& level);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_BENCH_SUMMARY_H_
