#ifndef SLUICE_COMMON_BASE_RETRY_AFTER_H_
#define SLUICE_COMMON_BASE_RETRY_AFTER_H_

#include <optional>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace sluice {

// `status` with the time after which the refused caller may find room. It
// travels as a payload; Annotate drops it. Not for OK.
Status WithRetryAfter(Status status, Duration wait);

// That time in whole seconds, rounded up: what the HTTP header Retry-After
// takes. At least 1; nothing if the status carries none.
std::optional<int> RetryAfterSeconds(const Status& status);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_RETRY_AFTER_H_
