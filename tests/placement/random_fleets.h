#ifndef SLUICE_TESTS_PLACEMENT_RANDOM_FLEETS_H_
#define SLUICE_TESTS_PLACEMENT_RANDOM_FLEETS_H_

#include <cstdint>
#include <random>

#include "common/base/cat.h"
#include "common/placement/cluster_plan.h"

namespace sluice::placement {

// Machines of drawn memory and rates, with drawn links between most pairs.
// Equal seeds give equal fleets.
class RandomFleets {
 public:
  explicit RandomFleets(uint32_t seed) : engine_(seed) {}

  // Returns a request for `count` machines of up to `gigabytes` each.
  PlanRequest Next(int count, double gigabytes) {
    PlanRequest request;
    for (int i = 0; i < count; ++i) {
      Machine& machine = request.machines.machines.emplace_back();
      machine.name = Cat("m-", i);
      machine.memory =
          static_cast<uint64_t>(Draw(0.15, 1) * gigabytes * double{1 << 30});
      machine.rates.read_gb_per_s = Draw(20, 1000);
      machine.rates.f32_gop_per_s = Draw(200, 20000);
      if (engine_() % 2 == 0) machine.rates.threads = 8;
      if (engine_() % 4 == 0) machine.rates.cache_bytes = 4e9;
      FillRates(machine.rates);
    }
    for (int32_t a = 0; a < count; ++a) {
      for (int32_t b = a + 1; b < count; ++b) {
        if (engine_() % 4 == 0) continue;  // the link of all
        request.machines.links.push_back(
            {a, b, {Draw(0, 4e-3), Draw(2e7, 1.25e9)}});
      }
    }
    request.loads.kv_type = kernels::WeightType::kBf16;
    request.context = 1024;
    request.streams = {1, 9, 16, 32};
    return request;
  }

 private:
  double Draw(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() % 10000) / 1e4;
  }

  std::mt19937 engine_;
};

}  // namespace sluice::placement

#endif  // SLUICE_TESTS_PLACEMENT_RANDOM_FLEETS_H_
