#ifndef SLUICE_COMMON_OPENAI_ERROR_H_
#define SLUICE_COMMON_OPENAI_ERROR_H_

#include <string_view>

#include "common/base/status.h"
#include "common/http/error_answer.h"

namespace sluice::openai {

// `status` with the request field and the code that the error object shall
// carry. They travel as payloads, so that parsers return plain statuses.
Status WithParam(Status status, std::string_view param);
Status WithCode(Status status, std::string_view code);

// INVALID_ARGUMENT about request field `param`: "param: parts...".
template <typename... Parts>
Status FieldError(std::string_view param, const Parts&... parts) {
  return WithParam(InvalidArgument(param, ": ", parts...), param);
}

// What a status is to a client: the code's HTTP status, and type, param and
// code, and when to try again (common/base/retry_after.h). INTERNAL's message
// stays with us.
http::ApiError ToApiError(const Status& status);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_ERROR_H_
