#ifndef SLUICE_COMMON_STANDBY_STANDING_H_
#define SLUICE_COMMON_STANDBY_STANDING_H_

#include <string>

#include "common/base/clock.h"
#include "common/core/gateway_role.h"

namespace sluice::standby {

// How a gateway's own pipeline is.
struct OwnPipeline {
  bool is_up = false;
  // The time without it; zero: it is up, or a stage loads its layers.
  Duration missing{};
};

// Where a gateway stands among the others of the same stages.
struct Standing {
  GatewayRole role = GatewayRole::kCandidate;
  // Of a leader: "up", "recovering", or "lost": without a pipeline for so long
  // that the others may try.
  std::string pipeline = {};
  // Of any other gateway: the leader's address, or empty; and whether it is
  // ready, since it knows a leader with the same order of stages.
  std::string leader = {};
  bool ready = false;
  std::string why = {};       // empty if ready, and while the gateway drains
  std::string open_why = {};  // as `why`, without addresses
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_STANDING_H_
