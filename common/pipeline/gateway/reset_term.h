#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_RESET_TERM_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_RESET_TERM_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/transport_options.h"

namespace sluice {

// Makes the stage at `address` forget its term, which a gateway refuses
// (StagePlaces). Returns the term until now. Errors as of the RPC ResetTerm,
// and DEADLINE_EXCEEDED after `limit`. Blocks.
StatusOr<uint64_t> ResetTerm(const std::string& address,
                             const rpc::TransportOptions& transport,
                             Duration limit);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_RESET_TERM_H_
