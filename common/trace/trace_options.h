#ifndef SLUICE_COMMON_TRACE_TRACE_OPTIONS_H_
#define SLUICE_COMMON_TRACE_TRACE_OPTIONS_H_

#include <cstddef>
#include <string>

#include "common/base/status.h"

namespace sluice::trace {

struct TraceOptions {
  double sample = 0;  // share of requests that are traced unasked
  // Every trace is written there too, as REQUEST-ID.json, for Perfetto and
  // chrome://tracing; empty: none. No file is overwritten: a second trace of an
  // id is REQUEST-ID~NUMBER.json.
  std::string folder;
  size_t max_bytes = size_t{64} << 20;  // of the kept traces
  // The most files of one run.
  size_t max_files = 10000;
  size_t max_file_bytes = size_t{1} << 30;
};

// INVALID_ARGUMENT for a share outside [0, 1] or a path that is no folder.
Status Validate(const TraceOptions& options);

}  // namespace sluice::trace

#endif  // SLUICE_COMMON_TRACE_TRACE_OPTIONS_H_
