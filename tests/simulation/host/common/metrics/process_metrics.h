#ifndef SLUICE_TESTS_SIMULATION_HOST_COMMON_METRICS_PROCESS_METRICS_H_
#define SLUICE_TESTS_SIMULATION_HOST_COMMON_METRICS_PROCESS_METRICS_H_

#include <string_view>

namespace sluice::metrics {

inline std::string_view BuildVersion() { return "simulated"; }

}  // namespace sluice::metrics

#endif  // SLUICE_TESTS_SIMULATION_HOST_COMMON_METRICS_PROCESS_METRICS_H_
