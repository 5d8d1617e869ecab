#ifndef SLUICE_COMMON_OTLP_SPANS_H_
#define SLUICE_COMMON_OTLP_SPANS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/trace/trace_record.h"
#include "opentelemetry/traces.pb.h"

namespace sluice::otlp {

// OTLP's messages, of which each has its own name in the protocol.
namespace wire = ::opentelemetry::proto::collector::trace::v1;

// The most spans of one request.
inline constexpr size_t kMaxSpans = 512;
// The tokens of a choice, besides the first one, whose parts become spans: the
// slowest ones.
inline constexpr size_t kSlowestTokens = 8;

// Adds the spans of a request: its server span, under the client's span if
// there is one; under that the parts until its first plan, "prefill" with the
// parts of the first token, "decode" with the slowest tokens and their parts.
// Several choices have a span each in between. Attributes follow the
// conventions for generative AI; README.md lists ours.
void AddSpans(const trace::TraceRecord& record, wire::ScopeSpans& out);

// Appends an attribute.
void SetAttribute(std::string_view key, std::string_view value,
                  wire::KeyValue& out);

}  // namespace sluice::otlp

#endif  // SLUICE_COMMON_OTLP_SPANS_H_
