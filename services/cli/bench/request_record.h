#ifndef SLUICE_SERVICES_CLI_BENCH_REQUEST_RECORD_H_
#define SLUICE_SERVICES_CLI_BENCH_REQUEST_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace sluice::cli {

// Tokens that arrived together.
struct TokenArrival {
  TimePoint at;
  int tokens = 1;
};

// Where the number of an answer's tokens comes from, best last.
enum class TokenSource { kEvents, kTokenIds, kUsage };

// How a request ended.
enum class Outcome {
  kDone,
  kRefused,    // 429
  kHttpError,  // another status than 200
  kConnect,    // no connection
  kBroken,     // the stream ended early, or was not HTTP or no stream
  kError,      // an error event within the stream
  kTimeout,
  kEmpty,      // it ended well, without a token
  kCancelled,  // by us, when the run was stopped
};
const char* OutcomeName(Outcome outcome);

// All that is known of one request. A value.
struct RequestRecord {
  int64_t index = 0;
  Outcome outcome = Outcome::kCancelled;
  int http_status = 0;
  double retry_after_s = -1;  // of a refusal; -1: none given
  std::string error;          // in the server's words

  TimePoint scheduled;  // when it was to be sent
  TimePoint sent;       // when its first byte was
  TimePoint ended;      // the last byte, or when it was given up
  bool new_connection = false;
  std::vector<TokenArrival> arrivals;  // in order

  int64_t asked_prompt_tokens = 0;  // 0: not known
  int64_t asked_output_tokens = 0;
  int64_t prompt_tokens = 0;  // as the server says, else as asked
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  TokenSource source = TokenSource::kEvents;

  // Seconds. From the scheduled arrival: what a user would have waited,
  // also where this client was late to send.
  double TimeToFirstToken() const;
  double Latency() const { return ::sluice::Seconds(ended - scheduled); }
  // Between the first and the last token, per token after the first; 0 for
  // less than two tokens.
  double TimePerOutputToken() const;
  double Lateness() const { return ::sluice::Seconds(sent - scheduled); }
  // The gap before every token after the first. Tokens that arrived together
  // share the gap before them, so that the mean is the time per token.
  std::vector<double> InterTokenLatencies() const;
  // The longest time without a token after the first; 0 without one.
  double LongestGap() const;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_BENCH_REQUEST_RECORD_H_
