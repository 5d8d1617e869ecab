#ifndef SLUICE_COMMON_TOOLS_LOAD_ARRIVALS_H_
#define SLUICE_COMMON_TOOLS_LOAD_ARRIVALS_H_

#include <cstdint>
#include <random>

#include "common/base/clock.h"

namespace sluice::load {

// Random numbers that a seed repeats on every platform: the standard defines
// the numbers of its engines, not those of its distributions.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : engine_(seed) {}

  double Uniform();                // [0, 1)
  uint64_t Below(uint64_t bound);  // [0, bound), bound > 0
  double Exponential();            // mean 1

 private:
  std::mt19937_64 engine_;
};

// The gaps between the arrivals of an open loop: a Poisson process.
class Arrivals {
 public:
  // `rate` per second is above 0.
  Arrivals(double rate, uint64_t seed) : rate_(rate), random_(seed) {}
  Duration NextGap();

 private:
  const double rate_;
  SeededRandom random_;
};

}  // namespace sluice::load

#endif  // SLUICE_COMMON_TOOLS_LOAD_ARRIVALS_H_
