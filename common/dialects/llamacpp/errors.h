#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_ERRORS_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_ERRORS_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/json_fwd.h"
#include "common/http/message.h"

namespace sluice::llamacpp {

// Returns {"error": {"code": HTTP status, "message", "type"}}, with
// "n_prompt_tokens" and "n_ctx" for a prompt that does not fit.
Json ErrorObject(const http::ApiError& error);

// The members of http::ClientFormat.
http::HttpResponse ErrorAnswer(const http::ApiError& error,
                               const http::HttpRequest& request);
std::string StreamError(const http::ApiError& error,
                        const http::HttpRequest& request);
void AddHeaders(const http::HttpRequest& request, Duration took,
                http::HttpHeaders& headers);

// Returns whether the path is llama.cpp's own.
bool IsSpoken(const http::HttpRequest& request);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_ERRORS_H_
