#include "common/http/event_framing.h"

namespace sluice::http {

HttpResponse JsonLinesHead() {
  HttpResponse head = SseHead();
  head.content_type = "application/x-ndjson";
  return head;
}

std::string FramedEvent(const EventFraming& framing, std::string_view json,
                        std::string_view id, std::string_view name) {
  const std::string begin = framing.begin(name);
  const std::string end = framing.end(id);
  std::string event;
  event.reserve(begin.size() + json.size() + end.size());
  return event.append(begin).append(json).append(end);
}

}  // namespace sluice::http
