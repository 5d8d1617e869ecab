#ifndef SLUICE_COMMON_BASE_RETRY_AFTER_H_
#define SLUICE_COMMON_BASE_RETRY_AFTER_H_

#include <optional>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace sluice {

// Returns `status` with the time after which the refused caller may find room,
// as a payload, which Annotate drops. Not for OK.
Status WithRetryAfter(Status status, Duration wait);

// Returns that time in whole seconds, rounded up, at least 1, for the HTTP
// header Retry-After; nothing if the status has none.
std::optional<int> RetryAfterSeconds(const Status& status);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_RETRY_AFTER_H_
