#ifndef SLUICE_COMMON_HTTP_SSE_H_
#define SLUICE_COMMON_HTTP_SSE_H_

#include <string>
#include <string_view>

#include "common/http/message.h"

namespace sluice::http {

// Server-sent events as OpenAI's clients read them: one event per chunk,
// "data: ", one line of JSON, an empty line.
HttpResponse SseHead();
std::string SseEvent(std::string_view json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
// A comment: readers skip it, and proxies see a live stream.
inline constexpr std::string_view kSsePing = ": ping\n\n";

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_SSE_H_
