#ifndef SLUICE_SERVICES_CLI_BENCH_LOAD_GENERATOR_H_
#define SLUICE_SERVICES_CLI_BENCH_LOAD_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "services/cli/bench/request_record.h"
#include "services/cli/http_client.h"

namespace sluice::cli {

// What to send. The body is JSON; the numbers are what it asks for.
struct LoadRequest {
  std::string body;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
};

struct LoadOptions {
  BaseUrl base;
  std::string target = "/v1/completions";
  // Closed loop: so many requests at any time. 0: open loop, by `rate`.
  int concurrency = 1;
  double rate = 0;  // per second
  uint64_t seed = 0;
  // No request is sent after this many (0: any number) or after this long
  // (0: for ever). One of them is set.
  int64_t num_requests = 0;
  Duration duration{0};
  Duration timeout = std::chrono::seconds(600);  // per request
  // Open loop: more requests than this are not held open, the next one waits
  // and is late.
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
  double began_unix_s = 0;   // `began` by the calendar, to find it in logs
  double cpu_share = 0;      // of one core, that this client took
  bool interrupted = false;  // by SIGINT
};

// Sends requests to an OpenAI endpoint and times their streams, all on the
// calling thread: an event loop over non-blocking sockets, whose cost is some
// 20 us per event. Connections are kept and used again. In a closed loop a
// slot whose request failed pauses before its next: as long as Retry-After
// says, at most 5 s, else 100 ms.
//
// `next` gives the request of an index, counted from 0; `on_progress` is
// called about ten times a second. SIGINT ends the run: requests in flight
// are cancelled. UNAVAILABLE if the host's name is not known.
StatusOr<LoadResult> GenerateLoad(
    const LoadOptions& options, const std::function<LoadRequest(int64_t)>& next,
    const std::function<void(const LoadProgress&)>& on_progress);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_LOAD_GENERATOR_H_
