#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/base/clock.h"
#include "tests/gpu/bandwidth.h"

namespace sluice::testing {

Json CpuBandwidth() {
  constexpr size_t kBytes = size_t{1} << 26;
  const std::vector<uint64_t> from(kBytes / 8, 1);
  std::vector<uint64_t> to(kBytes / 8);
  double read = 1e9;
  double copy = 1e9;
  uint64_t sum = 0;
  for (int round = 0; round < 3; ++round) {
    const int64_t start = MonotonicNanos();
    sum += std::accumulate(from.begin(), from.end(), uint64_t{0});
    const int64_t middle = MonotonicNanos();
    std::memcpy(to.data(), from.data(), kBytes);
    const int64_t stop = MonotonicNanos();
    read = std::min(read, static_cast<double>(middle - start) * 1e-9);
    copy = std::min(copy, static_cast<double>(stop - middle) * 1e-9);
  }
  return {{"name", sum + to[0] > 0 ? "one core" : ""},
          {"read_gb_per_s", kBytes / read * 1e-9},
          {"copy_gb_per_s", 2 * kBytes / copy * 1e-9}};
}

}  // namespace sluice::testing
