#include "services/cli/bench/arrivals.h"

#include <chrono>
#include <cmath>

namespace sluice::cli {

double SeededRandom::Uniform() {
  return static_cast<double>(engine_() >> 11) * 0x1p-53;
}

uint64_t SeededRandom::Below(uint64_t bound) {
  // Numbers beyond the last multiple of `bound` would make some likelier.
  const uint64_t excess = (0 - bound) % bound;
  uint64_t value = engine_();
  while (value > UINT64_MAX - excess) value = engine_();
  return value % bound;
}

double SeededRandom::Normal() {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius = std::sqrt(2 * Exponential());
  return radius * std::cos(kTwoPi * Uniform());
}

double SeededRandom::Exponential() { return -std::log1p(-Uniform()); }

double SeededRandom::Gamma(double shape) {
  if (shape < 1) {
    const double power = std::pow(1 - Uniform(), 1 / shape);
    return Gamma(shape + 1) * power;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log1p(-Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return d * v;
    }
  }
}

Arrivals::Arrivals(double rate, double burstiness, uint64_t seed)
    : rate_(rate), burstiness_(burstiness), random_(seed) {}

Duration Arrivals::NextGap() {
  double gap = 1;
  if (burstiness_ == 1) {
    gap = random_.Exponential();
  } else if (std::isfinite(burstiness_)) {
    gap = random_.Gamma(burstiness_) / burstiness_;
  }
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(gap / rate_));
}

}  // namespace sluice::cli
