#ifndef SLUICE_COMMON_OTLP_SAMPLER_H_
#define SLUICE_COMMON_OTLP_SAMPLER_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/otlp/otlp_options.h"

namespace sluice::otlp {

// A client's span, which ours continues.
struct Parent {
  std::string trace_id;  // 16 bytes
  std::string span_id;   // 8 bytes
  bool sampled = false;
};

// Takes a checked traceparent (http::SanitizedTraceparent) apart; nothing for
// an empty one.
std::optional<Parent> ParseParent(std::string_view traceparent);

// Returns whether a request with that traceparent is exported. Without one
// kRatio draws. Any thread.
bool IsSampled(const SamplerOptions& options, std::string_view traceparent);

}  // namespace sluice::otlp

#endif  // SLUICE_COMMON_OTLP_SAMPLER_H_
