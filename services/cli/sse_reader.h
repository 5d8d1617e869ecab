#ifndef SLUICE_SERVICES_CLI_SSE_READER_H_
#define SLUICE_SERVICES_CLI_SSE_READER_H_

#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

// Cuts a stream of server-sent events into the data of each event, however
// the bytes arrive. Comments and other fields are skipped. Threadless.
class SseReader {
 public:
  // The data of the events that `bytes` completes, in order; several data
  // lines of one event are joined by newlines.
  std::vector<std::string> Feed(std::string_view bytes);

 private:
  void Line(std::string_view line, std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_SSE_READER_H_
