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
  // Return what comes before an event's line of JSON, and what follows it; they
  // leave out a name or an id that the framing has no place for.
  std::string (*begin)(std::string_view name);
  std::string (*end)(std::string_view id);
  // Returns a line that readers skip; empty: there is no such line.
  std::string (*comment)(std::string_view text);
  // The end of every event. These bytes are nowhere else in an event.
  std::string_view last;
};

HttpResponse JsonLinesHead();

inline constexpr EventFraming kServerSentEvents = {
    SseHead, SseEventBegin, SseEventEnd, SseComment, "\n\n"};
// A line of JSON for each event (NDJSON). The events have no ids: no client
// goes on behind one of them, and no other gateway takes the stream over,
// because common/standby reads server-sent events alone.
inline constexpr EventFraming kJsonLines = {
    JsonLinesHead, [](std::string_view) { return std::string(); },
    [](std::string_view) { return std::string("\n"); },
    [](std::string_view) { return std::string(); }, "\n"};

// Returns the bytes of a whole event.
std::string FramedEvent(const EventFraming& framing, std::string_view json,
                        std::string_view id = {}, std::string_view name = {});

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_EVENT_FRAMING_H_
