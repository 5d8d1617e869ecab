#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_LEADERSHIP_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_LEADERSHIP_H_

#include <cstdint>
#include <utility>

#include "common/pipeline/gateway/pipeline_status.h"

namespace sluice {

// A gateway's role. The stages decide on it: each is one gateway's at a time.
// One thread, "pipeline".
class Leadership {
 public:
  // Takes in whether a pipeline of this gateway is `up`, and whether another
  // gateway has `held` a stage of it. Fills in the role in `status`. Returns
  // whether this gateway led until now and another one does from here on.
  bool Update(bool up, bool held, PipelineStatus& status) {
    const bool superseded = Update(up, held);
    status.role = role_;
    status.takeovers = takeovers_;
    return superseded;
  }

 private:
  bool Update(bool up, bool held) {
    const GatewayRole before = role_;
    if (up) {
      role_ = GatewayRole::kLeader;
    } else if (held) {
      role_ = GatewayRole::kStandby;
    } else if (role_ == GatewayRole::kStandby) {
      role_ = GatewayRole::kCandidate;
    }
    if (role_ == before) return false;
    if (role_ == GatewayRole::kLeader) ++takeovers_;
    return before == GatewayRole::kLeader;
  }

  GatewayRole role_ = GatewayRole::kCandidate;
  uint64_t takeovers_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_LEADERSHIP_H_
