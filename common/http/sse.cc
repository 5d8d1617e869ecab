#include "common/http/sse.h"

#include <utility>

#include "common/base/cat.h"
#include "common/http/event_framing.h"

namespace sluice::http {

HttpResponse SseHead() {
  return {200,
          "text/event-stream; charset=utf-8",
          {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
          ""};
}

std::string SseEvent(std::string_view json, std::string_view id,
                     std::string_view name) {
  return FramedEvent(kServerSentEvents, json, id, name);
}

std::string SseEventBegin(std::string_view name) {
  std::string begin;
  if (!name.empty()) begin.append("event: ").append(name).append("\n");
  return begin.append("data: ");
}

std::string SseEventEnd(std::string_view id) {
  std::string end = "\n";
  if (!id.empty()) end.append("id: ").append(id).append("\n");
  return end.append("\n");
}

std::string SseComment(std::string_view text) {
  return Cat(": ", text, "\n\n");
}

std::vector<std::string> SseReader::Feed(std::string_view bytes) {
  std::vector<std::string> events;
  for (size_t end = bytes.find('\n'); end != std::string_view::npos;
       end = bytes.find('\n')) {
    line_ += bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    Line(line_, events);
    line_.clear();
  }
  line_ += bytes;
  return events;
}

void SseReader::Line(std::string_view line, std::vector<std::string>& events) {
  if (line.empty()) {
    if (has_data_) events.push_back(std::exchange(data_, {}));
    has_data_ = false;
    return;
  }
  if (line.rfind("data:", 0) != 0) return;
  line.remove_prefix(5);
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace sluice::http
