#ifndef SLUICE_COMMON_DIALECTS_OLLAMA_ANSWER_H_
#define SLUICE_COMMON_DIALECTS_OLLAMA_ANSWER_H_

#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/json_fwd.h"
#include "common/http/message.h"
#include "common/serving/answer_format.h"
#include "common/serving/model_text.h"

namespace sluice::ollama {

enum class AnswerForm { kChat, kGenerate };

// Returns the writer of lines, or of the whole. `info.model` is the name that
// the client asked for; `arrival` is the request's. `text` must outlive it.
std::unique_ptr<serving::AnswerFormat> MakeFormat(
    const serving::ModelText& text, serving::AnswerInfo info, AnswerForm form,
    TimePoint arrival);

// Returns the answer to a body without a prompt. `reason`: "load" or "unload".
Json EmptyAnswer(AnswerForm form, std::string_view model,
                 std::string_view reason);

// Returns the time as RFC 3339 with nanoseconds, in UTC.
std::string TimeText(std::chrono::system_clock::time_point time);

// Errors below /api, of any handler and of the server: {"error": TEXT}, as a
// whole answer and as the last line of a stream.
http::HttpResponse ErrorAnswer(const http::ApiError& error,
                               const http::HttpRequest& request);
std::string StreamError(const http::ApiError& error,
                        const http::HttpRequest& request);

}  // namespace sluice::ollama

#endif  // SLUICE_COMMON_DIALECTS_OLLAMA_ANSWER_H_
