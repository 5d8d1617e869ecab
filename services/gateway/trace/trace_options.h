#ifndef SLUICE_SERVICES_GATEWAY_TRACE_TRACE_OPTIONS_H_
#define SLUICE_SERVICES_GATEWAY_TRACE_TRACE_OPTIONS_H_

#include <cstddef>
#include <string>

#include "common/base/status.h"

namespace sluice::gateway {

struct TraceOptions {
  double sample = 0;  // share of requests that are traced unasked
  // Every trace is written there too, as REQUEST-ID.json, which Perfetto and
  // chrome://tracing open; empty: none.
  std::string folder;
  size_t max_bytes = size_t{64} << 20;  // of the traces that are kept
  size_t max_files = 10000;             // that one run writes
};

// INVALID_ARGUMENT for a share that is none, or a folder that is none.
Status Validate(const TraceOptions& options);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_TRACE_TRACE_OPTIONS_H_
