#ifndef SLUICE_TESTS_SIMULATION_CLUSTER_RUN_H_
#define SLUICE_TESTS_SIMULATION_CLUSTER_RUN_H_

#include <cstdint>
#include <string>

#include "tests/simulation/totals.h"

namespace sluice::simulation {

struct Outcome {
  std::string failure;  // empty: none
  uint64_t digest = 0;  // of all that happened, in order
  Totals totals;
};

// Runs the cluster of `seed` from its start to its end.
Outcome RunCluster(uint64_t seed);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_CLUSTER_RUN_H_
