#include "common/tools/load/arrivals.h"

#include <chrono>
#include <cmath>

namespace sluice::load {

double SeededRandom::Uniform() {
  return static_cast<double>(engine_() >> 11) * 0x1p-53;
}

uint64_t SeededRandom::Below(uint64_t bound) {
  // Numbers beyond the last multiple of `bound` would favour some values.
  const uint64_t excess = (0 - bound) % bound;
  uint64_t value = engine_();
  while (value > UINT64_MAX - excess) value = engine_();
  return value % bound;
}

double SeededRandom::Exponential() { return -std::log1p(-Uniform()); }

Duration Arrivals::NextGap() {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(random_.Exponential() / rate_));
}

}  // namespace sluice::load
