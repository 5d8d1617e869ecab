// Server-sent events both ways. Any bytes into the reader give the same
// events however they are cut; and any texts that the gateway writes as
// events come back from the reader as they were. The first two bytes say how
// the stream is cut, a NUL ends a text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/http/sse.h"

namespace sluice {
namespace {

using Events = std::vector<std::string>;

Events Read(std::string_view stream, size_t first, size_t rest) {
  http::SseReader reader;
  Events events;
  size_t size = first;
  while (!stream.empty()) {
    for (std::string& event : reader.Feed(stream.substr(0, size))) {
      events.push_back(std::move(event));
    }
    stream.remove_prefix(std::min(size, stream.size()));
    size = rest;
  }
  return events;
}

void RunOne(std::string_view input) {
  const size_t first = static_cast<unsigned char>(input[0]);
  const size_t rest = 1 + static_cast<unsigned char>(input[1]) % 64;
  input.remove_prefix(2);
  SLUICE_CHECK(Read(input, first, rest) ==
               Read(input, input.size(), input.size()));

  std::string stream;
  Events sent;
  while (!input.empty()) {
    const size_t end = std::min(input.find('\0'), input.size());
    Json chunk{{"delta", std::string(input.substr(0, end))}};
    input.remove_prefix(std::min(end + 1, input.size()));
    sent.push_back(DumpJson(chunk));
    const std::string event = http::SseEvent(sent.back());
    SLUICE_CHECK(event.find("\n\n") == event.size() - 2);
    stream += event;
  }
  sent.emplace_back("[DONE]");
  stream += http::SseEvent("[DONE]");
  const Events received = Read(stream, first, rest);
  SLUICE_CHECK(received == sent);
  for (size_t i = 0; i + 1 < received.size(); ++i) {
    const auto parsed = ParseJson(received[i]);
    SLUICE_CHECK(parsed.ok() && DumpJson(*parsed) == sent[i]);
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  sluice::RunOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
