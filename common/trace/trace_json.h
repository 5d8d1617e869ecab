#ifndef SLUICE_COMMON_TRACE_TRACE_JSON_H_
#define SLUICE_COMMON_TRACE_TRACE_JSON_H_

#include <string>

#include "common/trace/trace_path.h"
#include "common/trace/trace_record.h"

namespace sluice::trace {

// "gateway", "stage 1", "hop 2".
std::string PlaceName(const TracePlace& place);

// Returns a trace as the answer of GET /debug/traces/ID; see README.md. Times
// are microseconds from the request's arrival.
std::string TraceJson(const TraceRecord& record);

}  // namespace sluice::trace

#endif  // SLUICE_COMMON_TRACE_TRACE_JSON_H_
