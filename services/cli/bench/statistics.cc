#include "services/cli/bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace sluice::cli {

double Percentile(const std::vector<double>& sorted, double percent) {
  const double rank =
      std::clamp(percent, 0.0, 100.0) / 100.0 * double(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = rank - static_cast<double>(below);
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

Summary Summarize(std::vector<double> values) {
  Summary out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  out.mean = sum / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) {
    squares += (value - out.mean) * (value - out.mean);
  }
  out.deviation = std::sqrt(squares / static_cast<double>(values.size()));
  out.min = values.front();
  out.p50 = Percentile(values, 50);
  out.p90 = Percentile(values, 90);
  out.p95 = Percentile(values, 95);
  out.p99 = Percentile(values, 99);
  out.max = values.back();
  return out;
}

}  // namespace sluice::cli
