#ifndef SLUICE_COMMON_TOOLS_LOAD_REQUEST_RECORD_H_
#define SLUICE_COMMON_TOOLS_LOAD_REQUEST_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace sluice::load {

// Tokens that arrived together.
struct TokenArrival {
  TimePoint at;
  int tokens = 1;
};

// The source of an answer's token count, best last.
enum class TokenSource { kEvents, kTokenIds, kUsage };

// How a request ended.
enum class Outcome {
  kDone,
  kRefused,    // 429
  kHttpError,  // another status than 200
  kConnect,    // no connection
  kBroken,     // the stream ended early, or was no HTTP stream
  kError,      // an error event within the stream
  kTimeout,
  kEmpty,      // the answer ended well, without a token
  kCancelled,  // by this client, at the end of the run
};
const char* OutcomeName(Outcome outcome);

// The record of one request. A value.
struct RequestRecord {
  int64_t index = 0;
  Outcome outcome = Outcome::kCancelled;
  int http_status = 0;
  double retry_after_s = -1;  // of a refusal; -1: none
  std::string error;          // the server's message

  TimePoint scheduled;  // the time to send it
  TimePoint sent;       // the first byte's time
  TimePoint ended;      // the last byte's time, or that of giving up
  bool new_connection = false;
  std::vector<TokenArrival> arrivals;  // in order

  int64_t asked_prompt_tokens = 0;  // 0: unknown
  int64_t asked_output_tokens = 0;
  int64_t prompt_tokens = 0;  // by the server, else as requested
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  TokenSource source = TokenSource::kEvents;

  // Seconds from the scheduled arrival, so that a late client hides no queue.
  double TimeToFirstToken() const;
  double Latency() const { return ::sluice::Seconds(ended - scheduled); }
  // Returns the time between first and last token, per token after the first; 0
  // for less than two tokens.
  double TimePerOutputToken() const;
  double Lateness() const { return ::sluice::Seconds(sent - scheduled); }
  // Returns the gap before every token after the first. Tokens of one event
  // share the gap before them, so that the mean is the time per token.
  std::vector<double> InterTokenLatencies() const;
  // Returns the longest gap; 0 without one.
  double LongestGap() const;
};

}  // namespace sluice::load

#endif  // SLUICE_COMMON_TOOLS_LOAD_REQUEST_RECORD_H_
