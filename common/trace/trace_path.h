#ifndef SLUICE_COMMON_TRACE_TRACE_PATH_H_
#define SLUICE_COMMON_TRACE_TRACE_PATH_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/trace/trace_record.h"

namespace sluice::trace {

// The process or hop that a part's time belongs to.
struct TracePlace {
  enum Kind { kGateway, kHop, kStage };
  Kind kind = kGateway;
  // Stage, or hop: hop i leads to stage i, the last one back to the gateway.
  int index = 0;
  bool operator==(const TracePlace&) const = default;
};

// One part of the time. One process reads both its start and its stop; a part
// that follows at once shares the reading.
struct TracePart {
  std::string_view name;  // a literal
  TracePlace place;
  int64_t start_ns = 0;
  int64_t stop_ns = 0;
};

// The parts that one token waited for, in order and without overlap. They begin
// when the token before it was known (for the first token: at the request's
// arrival) and end when its bytes were written.
struct TokenPath {
  int32_t num_tokens = 0;  // 0: an end token, or an end without one
  std::vector<TracePart> parts;
  // The trace of a step, or a part of one, is missing.
  bool incomplete = false;
  // The number of parts that delay the next token; the other parts, which carry
  // the token to the client, run beside the next step.
  size_t num_on_path = 0;
  // Steps of this token that ran beside its last ones (chunks of a long prompt
  // follow each other closely); they are not among `parts`.
  std::vector<TracePart> beside;
};

struct ChoicePath {
  std::vector<TokenPath> tokens;

  // Of the parts that delay the answer, which follow each other.
  int64_t sum_ns() const;
  // From the first part's start to the last part's stop.
  int64_t wall_ns() const;
  // Tokens, and ends without one, whose path has a hole.
  int64_t num_incomplete() const;
};

// The path of each token of one choice.
ChoicePath MakePath(const TraceRecord& record, size_t choice);

}  // namespace sluice::trace

#endif  // SLUICE_COMMON_TRACE_TRACE_PATH_H_
