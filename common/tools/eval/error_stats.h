#ifndef SLUICE_COMMON_TOOLS_EVAL_ERROR_STATS_H_
#define SLUICE_COMMON_TOOLS_EVAL_ERROR_STATS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace sluice::eval {

// The mean and maximum of absolute errors. A NaN counts as infinite.
struct ErrorStats {
  size_t count = 0;
  double sum = 0, max = 0;

  void Add(double error) {
    const double size = std::isnan(error)
                            ? std::numeric_limits<double>::infinity()
                            : std::fabs(error);
    ++count;
    sum += size;
    max = std::max(max, size);
  }
  void Add(const ErrorStats& other) {
    count += other.count;
    sum += other.sum;
    max = std::max(max, other.max);
  }
  double Mean() const { return count == 0 ? 0 : sum / double(count); }
};

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_ERROR_STATS_H_
