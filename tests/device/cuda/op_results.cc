#include "tests/device/cuda/op_results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/kernel_tester.h"

namespace sluice::testing {

bool SameBits(const OpResults& a, const OpResults& b) {
  return std::ranges::equal(a, b, [](const OpResult& x, const OpResult& y) {
    return kernels::SameBits(x.values, y.values);
  });
}

double ErrorOf(const OpResults& got, const OpResults& want) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (got.size() != want.size()) return kInfinity;
  double error = 0;
  for (size_t n = 0; n < got.size(); ++n) {
    const std::vector<float>& x = got[n].values;
    const std::vector<float>& y = want[n].values;
    if (x.size() != y.size() || (got[n].is_ids && x != y)) return kInfinity;
    double most = 0;
    double largest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return kInfinity;
      most = std::max(most, std::abs(double{x[i]} - double{y[i]}));
      largest = std::max(largest, std::abs(double{y[i]}));
    }
    error = std::max(error, largest > 0 ? most / largest : most);
  }
  return error;
}

}  // namespace sluice::testing
