#ifndef SLUICE_COMMON_HTTP_EVENT_FRAMING_H_
#define SLUICE_COMMON_HTTP_EVENT_FRAMING_H_

#include <string>
#include <string_view>

#include "common/http/message.h"
#include "common/http/sse.h"

namespace sluice::http {

// How the events of a stream become bytes. A value of pure functions.
struct EventFraming {
  HttpResponse (*head)();
  // Return what comes before an event's one line of JSON, and what follows it;
  // a name or an id that has no place there is left out.
  std::string (*begin)(std::string_view name);
  std::string (*end)(std::string_view id);
  // Returns a line that readers skip; empty: there is no such line.
  std::string (*comment)(std::string_view text);
  std::string_view last;  // the bytes that end each event, and stand at its end
                          // alone
};

HttpResponse JsonLinesHead();

inline constexpr EventFraming kServerSentEvents = {
    SseHead, SseEventBegin, SseEventEnd, SseComment, "\n\n"};
// A line of JSON for each event (NDJSON).
inline constexpr EventFraming kJsonLines = {
    JsonLinesHead, [](std::string_view) { return std::string(); },
    [](std::string_view) { return std::string("\n"); },
    [](std::string_view) { return std::string(); }, "\n"};

// Returns the bytes of a whole event.
std::string FramedEvent(const EventFraming& framing, std::string_view json,
                        std::string_view id = {}, std::string_view name = {});

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_EVENT_FRAMING_H_
