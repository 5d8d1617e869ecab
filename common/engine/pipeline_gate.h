#ifndef SLUICE_COMMON_ENGINE_PIPELINE_GATE_H_
#define SLUICE_COMMON_ENGINE_PIPELINE_GATE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/step_plan.h"
#include "common/engine/engine_options.h"

namespace sluice {

// What is known of the pipeline when a request comes: whether requests are
// taken, and the limits that they must keep. Behind EngineLoop's mutex.
class PipelineGate {
 public:
  // `recovers`: requests are taken while a lost pipeline is built anew.
  explicit PipelineGate(bool recovers) : recovers_(recovers) {}

  void OnUp(Epoch epoch, const PlanLimits& limits) {
    up_ = epoch;
    is_recovering_ = false;
    leaving_ = OkStatus();
    limits_ = limits;
  }
  void OnLost() {
    if (up_) is_recovering_ = recovers_;
    up_.reset();
  }
  // The pipeline of `epoch` does not work. Changes nothing if a newer one was
  // announced already.
  void OnBroken(Epoch epoch) {
    if (up_ == epoch) OnLost();
  }
  // The lost pipeline did not come back in time, or its sequences cannot go on.
  void OnGivenUp() { is_recovering_ = false; }
  // The pipeline will be lost because of `why`.
  void OnLeaving(const Status& why) { leaving_ = why; }

  // Returns why requests are refused, or OK.
  Status Check() const {
    if (is_recovering_) return OkStatus();
    if (!up_) return Unavailable("no pipeline is up");
    return recovers_ ? OkStatus() : leaving_;
  }
  bool is_up() const { return up_.has_value(); }
  bool is_recovering() const { return is_recovering_; }
  // The limits of the pipeline that is up, or that recovers; else nothing.
  std::optional<PlanLimits> limits() const {
    if (!up_ && !is_recovering_) return std::nullopt;
    return limits_;
  }

 private:
  const bool recovers_;
  std::optional<Epoch> up_;
  bool is_recovering_ = false;
  Status leaving_;  // why the pipeline will go; OK: it will not
  PlanLimits limits_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_PIPELINE_GATE_H_
