#include "common/experts/client/latency_window.h"

#include <algorithm>
#include <bit>

namespace sluice {

size_t LatencyWindow::ClassOf(int64_t size) {
  const auto bits =
      std::bit_width(static_cast<uint64_t>(std::max<int64_t>(size, 1)));
  return std::min(static_cast<size_t>(bits) - 1, kClasses - 1);
}

void LatencyWindow::Add(int64_t size, int64_t nanos) {
  Class& of = classes_[ClassOf(size)];
  if (of.latest.size() < kWindow) {
    of.latest.push_back(nanos);
  } else {
    of.latest[of.next] = nanos;
    of.next = (of.next + 1) % kWindow;
  }
  if (of.latest.size() < kFewest || ++of.since_refresh < kRefresh) return;
  of.since_refresh = 0;
  std::vector<int64_t> sorted = of.latest;
  const auto at = sorted.begin() +
                  static_cast<std::ptrdiff_t>((sorted.size() - 1) * 99 / 100);
  std::nth_element(sorted.begin(), at, sorted.end());
  of.late_ns = std::max(kMinNs, *at);
}

int64_t LatencyWindow::LateNanos(int64_t size) const {
  return classes_[ClassOf(size)].late_ns;
}

}  // namespace sluice
