#ifndef SLUICE_COMMON_OTLP_OTLP_OPTIONS_H_
#define SLUICE_COMMON_OTLP_OTLP_OPTIONS_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

// Where traces go, by OpenTelemetry's own variables. This header needs no gRPC.
namespace sluice::otlp {

struct SamplerOptions {
  enum Root { kAlways, kNever, kRatio };
  Root root = kAlways;
  // The client's traceparent decides, where there is one.
  bool by_parent = true;
  double ratio = 1;  // of kRatio
};

struct OtlpOptions {
  std::string target;  // "host:port"
  bool tls = false;
  // PEM files; empty: the system's authorities, no certificate of our own.
  std::string authority;
  std::string certificate;
  std::string key;
  bool gzip = false;
  std::vector<std::pair<std::string, std::string>> headers;  // lower-case names
  Duration timeout = std::chrono::seconds(10);               // of one call
  Duration delay = std::chrono::seconds(1);  // that a trace waits for others
  SamplerOptions sampler;
  std::vector<std::pair<std::string, std::string>> resource;  // attributes
  // Traces that wait; later ones are dropped.
  size_t max_queued = 256;
  size_t max_queued_bytes = size_t{64} << 20;
  Duration flush = std::chrono::seconds(3);  // the most that a stop waits
};

// Returns the value of an environment variable, or null.
using Environment = std::function<const char*(const char*)>;

// Returns what the variables of OpenTelemetry's specification say; nothing
// without OTEL_EXPORTER_OTLP_ENDPOINT (or _TRACES_ENDPOINT), under
// OTEL_SDK_DISABLED=true and OTEL_TRACES_EXPORTER=none. INVALID_ARGUMENT names
// a variable with a value that cannot be obeyed, but no value of a header.
StatusOr<std::optional<OtlpOptions>> OptionsFromEnvironment(
    const Environment& environment);

}  // namespace sluice::otlp

#endif  // SLUICE_COMMON_OTLP_OTLP_OPTIONS_H_
