#include "common/otlp/sampler.h"

#include <cstdint>

#include "common/base/random_bytes.h"

namespace sluice::otlp {
namespace {

int Nibble(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

std::string FromHex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(16 * Nibble(digits[i]) + Nibble(digits[i + 1]));
  }
  return bytes;
}

// Whether the 63 bits of a trace id's last half are below the ratio: what
// OpenTelemetry's libraries compute, so that all services choose alike.
bool IsWithin(double ratio, uint64_t bits) {
  constexpr double kAll = 0x1p63;
  return static_cast<double>(bits >> 1) < ratio * kAll;
}

}  // namespace

std::optional<Parent> ParseParent(std::string_view traceparent) {
  // 00-TRACE-SPAN-FLAGS
  constexpr size_t kTrace = 3;
  constexpr size_t kSpan = kTrace + 32 + 1;
  constexpr size_t kFlags = kSpan + 16 + 1;
  if (traceparent.size() < kFlags + 2) return std::nullopt;
  Parent parent;
  parent.trace_id = FromHex(traceparent.substr(kTrace, 32));
  parent.span_id = FromHex(traceparent.substr(kSpan, 16));
  parent.sampled = Nibble(traceparent[kFlags + 1]) % 2 == 1;
  return parent;
}

bool IsSampled(const SamplerOptions& options, std::string_view traceparent) {
  const std::optional<Parent> parent = ParseParent(traceparent);
  if (parent && options.by_parent) return parent->sampled;
  if (options.root != SamplerOptions::kRatio) {
    return options.root == SamplerOptions::kAlways;
  }
  if (!parent) return IsWithin(options.ratio, RandomBits());
  uint64_t bits = 0;
  for (const char byte : parent->trace_id.substr(8)) {
    bits = bits << 8 | static_cast<uint8_t>(byte);
  }
  return IsWithin(options.ratio, bits);
}

}  // namespace sluice::otlp
