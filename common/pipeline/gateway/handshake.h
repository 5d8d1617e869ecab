#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/core/stage_identity.h"
#include "common/wire/stage.h"

namespace sluice {

// What the stage at `address` says of itself. INVALID_ARGUMENT for a welcome
// out of range; FAILED_PRECONDITION if the protocol versions differ (both are
// named).
StatusOr<StageFacts> CheckWelcome(const std::string& address,
                                  const v1::Welcome& welcome);

// Whether `stages`, in their order, are one pipeline: layer ranges that join
// up and cover the model; digest, numerics, weights' dtype, hidden size,
// vocabulary, block size and KV groups equal. Otherwise FAILED_PRECONDITION
// naming both sides' addresses and values, and `conflict` becomes the stage
// that is at odds with those before.
StatusOr<StageFacts> JoinStages(const std::vector<StageFacts>& stages,
                                size_t& conflict);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_
