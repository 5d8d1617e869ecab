#ifndef SLUICE_SERVICES_CLI_BENCH_ARRIVALS_H_
#define SLUICE_SERVICES_CLI_BENCH_ARRIVALS_H_

#include <cstdint>
#include <random>

#include "common/base/clock.h"

namespace sluice::cli {

// Random numbers that a seed repeats on every platform: the standard fixes
// the engine's numbers but not its distributions', so those are ours.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : engine_(seed) {}

  double Uniform();                // [0, 1)
  uint64_t Below(uint64_t bound);  // [0, bound), bound > 0
  double Normal();                 // mean 0, deviation 1
  double Exponential();            // mean 1
  // Mean `shape`, scale 1; Marsaglia and Tsang, "A simple method for
  // generating gamma variables", 2000.
  double Gamma(double shape);

 private:
  std::mt19937_64 engine_;
};

// The gaps between the arrivals of an open loop: gamma distributed with mean
// 1 / rate and shape `burstiness`: 1 is a Poisson process, below 1 arrivals
// come in bursts, above 1 they are steadier, infinity is a fixed beat.
class Arrivals {
 public:
  // `rate` per second and `burstiness` are above 0.
  Arrivals(double rate, double burstiness, uint64_t seed);
  Duration NextGap();

 private:
  const double rate_;
  const double burstiness_;
  SeededRandom random_;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_ARRIVALS_H_
