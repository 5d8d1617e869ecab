#ifndef SLUICE_COMMON_HTTP_SSE_H_
#define SLUICE_COMMON_HTTP_SSE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/http/message.h"

namespace sluice::http {

// Server-sent events, one per chunk: "event: " and its name unless that is
// empty, "data: ", one line of JSON, "id: " and its id unless that is empty, an
// empty line. An id is one line. It comes last because some clients take it
// when they read its line: what it says that they have, they have by then.
HttpResponse SseHead();
std::string SseEvent(std::string_view json, std::string_view id = {},
                     std::string_view name = {});
// What comes before the JSON, and what follows it.
std::string SseEventBegin(std::string_view name);
std::string SseEventEnd(std::string_view id);
// A comment of one line: readers skip it, and proxies see a live stream.
std::string SseComment(std::string_view text);

// Cuts a stream of server-sent events into the data of each event, for any
// pieces of bytes. Skips comments and other fields. Threadless.
class SseReader {
 public:
  // Returns the data of the events that `bytes` completes, in order; newlines
  // join several data lines of one event.
  std::vector<std::string> Feed(std::string_view bytes);

 private:
  void Line(std::string_view line, std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_SSE_H_
