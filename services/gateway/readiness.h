#ifndef SLUICE_SERVICES_GATEWAY_READINESS_H_
#define SLUICE_SERVICES_GATEWAY_READINESS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::gateway {

// A part of the cluster that requests need.
struct PartReadiness {
  std::string name;  // "stage 1 (127.0.0.1:7001)"
  bool ready = false;
  std::string why;  // empty if ready
};

struct GatewayReadiness {
  bool ready = false;
  std::string why;  // empty if ready
  std::vector<PartReadiness> parts;
  uint64_t epoch = 0;  // of the pipeline that is up, or being assigned
};

// {"ready", "why", "not_ready": [{"name", "why"}], "epoch"}.
std::string ReadinessJson(const GatewayReadiness& readiness);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_READINESS_H_
