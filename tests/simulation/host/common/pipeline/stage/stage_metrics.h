#ifndef SLUICE_TESTS_SIMULATION_HOST_COMMON_PIPELINE_STAGE_STAGE_METRICS_H_
#define SLUICE_TESTS_SIMULATION_HOST_COMMON_PIPELINE_STAGE_STAGE_METRICS_H_

#include <cstdint>

#include "common/stage/stage_loop.h"

namespace sluice {

// Sessions of the simulation have none.
class StageMetrics {
 public:
  enum class Peer { kPrevious, kNext, kGateway };
  void OnStep(const StepOutput&) {}
  void OnWire(Peer, int64_t) {}
  void OnHop(int64_t) {}
  void OnSerialized(int64_t) {}
  void OnWindow(int64_t) {}
  void OnCopied(bool, uint64_t, int64_t) {}
};

}  // namespace sluice

#endif  // SLUICE_TESTS_SIMULATION_HOST_COMMON_PIPELINE_STAGE_STAGE_METRICS_H_
