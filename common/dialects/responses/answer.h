#ifndef SLUICE_COMMON_DIALECTS_RESPONSES_ANSWER_H_
#define SLUICE_COMMON_DIALECTS_RESPONSES_ANSWER_H_

#include <functional>
#include <memory>
#include <string>

#include "common/base/json_fwd.h"
#include "common/dialects/responses/request.h"
#include "common/http/message.h"
#include "common/serving/answer_format.h"

namespace sluice::responses {

// What the writer of an answer takes from its request.
struct AnswerTerms {
  ToolNames names;
  Json echo;  // of ResponsesRequest
  bool tells_summary = false;
  // Keeps a response that has ended, its id and it, and returns whether it is
  // kept; null: it is not.
  std::function<bool(const std::string& id, const Json& response)> keep =
      nullptr;
};

// Writes response objects, and streams of typed events. `text` outlives it.
std::unique_ptr<serving::AnswerFormat> MakeResponseFormat(
    const serving::ModelText& text, const serving::AnswerInfo& info,
    AnswerTerms terms);

// Returns {"code", "message"} of an error within a response. Codes that clients
// read: context_length_exceeded, rate_limit_exceeded (with "try again in Ns"),
// invalid_prompt, server_error.
Json ResponseError(const http::ApiError& error);

// Returns the bytes of the event `error`, for an error of the server within a
// stream.
std::string StreamError(const http::ApiError& error,
                        const http::HttpRequest& request);

}  // namespace sluice::responses

#endif  // SLUICE_COMMON_DIALECTS_RESPONSES_ANSWER_H_
