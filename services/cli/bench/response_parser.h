#ifndef SLUICE_SERVICES_CLI_BENCH_RESPONSE_PARSER_H_
#define SLUICE_SERVICES_CLI_BENCH_RESPONSE_PARSER_H_

#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice::cli {

// Takes the bytes of one HTTP/1.1 response as they arrive and gives its body
// without a wait for the end of chunks. Threadless.
class ResponseParser {
 public:
  ResponseParser();
  ~ResponseParser();
  ResponseParser(const ResponseParser&) = delete;
  ResponseParser& operator=(const ResponseParser&) = delete;

  // INVALID_ARGUMENT for bytes that are no HTTP, or that follow the end.
  Status Feed(std::string_view bytes);
  // The peer closed the connection: the end of some bodies, else an error.
  Status Close();

  bool has_header() const;
  bool is_done() const;
  // After the header:
  int status() const;
  bool is_event_stream() const;
  bool keep_alive() const;
  double retry_after_s() const;  // -1: none

  // The bytes of the body since the last call.
  std::string TakeBody();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_RESPONSE_PARSER_H_
