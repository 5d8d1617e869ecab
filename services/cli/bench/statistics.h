#ifndef SLUICE_SERVICES_CLI_BENCH_STATISTICS_H_
#define SLUICE_SERVICES_CLI_BENCH_STATISTICS_H_

#include <cstddef>
#include <vector>

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

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_STATISTICS_H_
