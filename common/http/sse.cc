#include "common/http/sse.h"

namespace sluice::http {

HttpResponse SseHead() {
  return {200,
          "text/event-stream; charset=utf-8",
          {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
          ""};
}

std::string SseEvent(std::string_view json) {
  std::string event;
  event.reserve(json.size() + 8);
  return event.append("data: ").append(json).append("\n\n");
}

}  // namespace sluice::http
