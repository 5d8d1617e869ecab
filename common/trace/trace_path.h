#ifndef SLUICE_COMMON_TRACE_TRACE_PATH_H_
#define SLUICE_COMMON_TRACE_TRACE_PATH_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/trace/trace_record.h"

namespace sluice::trace {

// Whose time a part is.
struct TracePlace {
  enum Kind { kGateway, kHop, kStage };
  Kind kind = kGateway;
  // Stage, or hop: hop i leads to stage i, the last one back to the gateway.
  int index = 0;
  bool operator==(const TracePlace&) const = default;
};

// One thing that took time. Its start and its stop were both read where it
// happened; what one hands over to the next at one moment shares that reading.
struct TracePart {
  std::string_view name;  // a literal
  TracePlace place;
  int64_t start_ns = 0;
  int64_t stop_ns = 0;
};

// What one token waited for, in order and without overlap: from the moment
// when the token before it was known (the first one: from the request's
// arrival) until its bytes were written.
struct TokenPath {
  int32_t num_tokens = 0;  // 0: an end token, or an end without one
  std::vector<TracePart> parts;
  // A step's trace is missing, or a part of one: there is a hole where it was.
  bool incomplete = false;
  // So many of the parts delay what comes after; the others, which carry the
  // token to the client, run beside the next step.
  size_t num_on_path = 0;
  // Steps of this token that ran beside its last ones (a long prompt's chunks
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

// The way of one choice's tokens.
ChoicePath MakePath(const TraceRecord& record, size_t choice);

}  // namespace sluice::trace

#endif  // SLUICE_COMMON_TRACE_TRACE_PATH_H_
