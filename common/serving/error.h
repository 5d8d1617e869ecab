#ifndef SLUICE_COMMON_SERVING_ERROR_H_
#define SLUICE_COMMON_SERVING_ERROR_H_

#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "common/http/error_answer.h"

namespace sluice::serving {

// Returns `status` with the request field and the code of its error object.
// Both travel as payloads, so that parsers return plain statuses.
Status WithParam(Status status, std::string_view param);
Status WithCode(Status status, std::string_view code);
// Likewise the tokens of a prompt and the context's; the code is
// context_length_exceeded.
Status WithTooLong(Status status, int64_t tokens, int64_t limit);

// Returns INVALID_ARGUMENT about request field `param`: "param: parts...".
template <typename... Parts>
Status FieldError(std::string_view param, const Parts&... parts) {
  return WithParam(InvalidArgument(param, ": ", parts...), param);
}

// Returns a status as an error answer: HTTP status, type, param, code and the
// time to try again (common/base/retry_after.h). Clients do not get INTERNAL's
// message.
http::ApiError ToApiError(const Status& status);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_ERROR_H_
