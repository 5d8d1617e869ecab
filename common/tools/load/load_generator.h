#ifndef SLUICE_COMMON_TOOLS_LOAD_LOAD_GENERATOR_H_
#define SLUICE_COMMON_TOOLS_LOAD_LOAD_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/http_client.h"
#include "common/tools/load/request_record.h"

namespace sluice::load {

// A request. The body is JSON; the numbers are those in the body.
struct LoadRequest {
  std::string body;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
};

struct LoadOptions {
  http::BaseUrl base;
  std::string target = "/v1/completions";
  // Closed loop: requests at any time. 0: open loop, by `rate`.
  int concurrency = 1;
  double rate = 0;  // per second
  uint64_t seed = 0;
  // The run sends at most this many requests (0: any number), for at most this
  // long (0: any time). One of them is set.
  int64_t num_requests = 0;
  Duration duration{0};
  Duration timeout = std::chrono::seconds(600);  // per request
  // Open loop: the most open requests. Beyond it the next one waits, and is
  // late.
  int max_in_flight = 4096;
};

struct LoadProgress {
  double elapsed_s = 0;
  int64_t ended = 0, failed = 0, in_flight = 0;
  int64_t tokens = 0;
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the order of their index
  TimePoint began, ended;
  double began_unix_s = 0;   // `began` by the calendar, for logs
  double cpu_share = 0;      // this client's share of a core
  bool interrupted = false;  // by SIGINT
};

// Sends requests to an OpenAI endpoint and times their streams on the calling
// thread: an event loop over non-blocking sockets that reuses connections. In a
// closed loop a slot with a failed request pauses before its next one: by
// Retry-After, at most 5 s, else 100 ms.
//
// `next` returns the request of an index, counted from 0; `on_progress` is
// called about ten times a second. SIGINT ends the run and cancels the requests
// in flight. UNAVAILABLE for an unknown host name.
StatusOr<LoadResult> GenerateLoad(
    const LoadOptions& options, const std::function<LoadRequest(int64_t)>& next,
    const std::function<void(const LoadProgress&)>& on_progress);

}  // namespace sluice::load

#endif  // SLUICE_COMMON_TOOLS_LOAD_LOAD_GENERATOR_H_
