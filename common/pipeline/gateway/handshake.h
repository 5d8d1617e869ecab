#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/stage_identity.h"
#include "common/wire/stage.h"

namespace sluice {

// The highest epoch that the stage has seen.
Epoch HighestOf(const v1::Welcome& welcome);

// What makes a stage forget its term, for people.
std::string ResetTermHint(const std::string& address);

// Returns the facts that the stage at `address` gives of itself.
// INVALID_ARGUMENT for a welcome out of range; FAILED_PRECONDITION, naming both
// versions, if the protocol versions differ, or if no term is left.
StatusOr<StageFacts> CheckWelcome(const std::string& address,
                                  const v1::Welcome& welcome);

// Joins `stages`, in their order, to one pipeline: their layer ranges must join
// up and cover the model; digest, numerics, weights' dtype, hidden size,
// vocabulary, block size and KV groups must be equal. Otherwise
// FAILED_PRECONDITION, naming both addresses and values, and `conflict` becomes
// the index of the stage that does not fit the first one, or the first one that
// fits `before`, the latest pipeline.
StatusOr<StageFacts> JoinStages(const std::vector<StageFacts>& stages,
                                const std::optional<StageFacts>& before,
                                size_t& conflict);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_HANDSHAKE_H_
