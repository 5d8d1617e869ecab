#ifndef SLUICE_TESTS_SIMULATION_CLUSTER_SHAPE_H_
#define SLUICE_TESTS_SIMULATION_CLUSTER_SHAPE_H_

#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/core/step_plan.h"
#include "tests/simulation/gateway_process.h"
#include "tests/simulation/network.h"
#include "tests/simulation/stage_process.h"
#include "tests/simulation/totals.h"

namespace sluice::simulation {

// What a seed's cluster consists of, and what may befall it.
struct ClusterShape {
  PlanLimits limits;
  int num_gateways = 1;  // on hosts 0 and up
  GatewaySetup gateway;
  std::vector<StageSetup> stages;  // those with a place, then spares
  Network::Weather weather;
  int yields = 0;  // see Process
  int num_requests = 0;
  int max_positions = 0;
  Duration duration{};  // of requests and faults
  Duration fault_every{};
  std::vector<Fault> faults;  // those that happen
  bool rogues = false;        // peers that are nobody's gateway come by
  int num_hosts() const {
    return num_gateways + static_cast<int>(stages.size());
  }
};

ClusterShape RandomCluster(uint64_t seed);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_CLUSTER_SHAPE_H_
