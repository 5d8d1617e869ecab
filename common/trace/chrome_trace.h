#ifndef SLUICE_COMMON_TRACE_CHROME_TRACE_H_
#define SLUICE_COMMON_TRACE_CHROME_TRACE_H_

#include <string>

#include "common/trace/trace_record.h"

namespace sluice::trace {

// A trace in Chrome's trace event format (JSON), which ui.perfetto.dev and
// chrome://tracing open. One process for the gateway, one for the wire, one
// per stage. The gateway's first track of each choice has the request, in it
// its tokens, in them the parts that delayed them; the other tracks show the
// same parts, and those that ran beside, where they happened. Slices of one
// track nest or follow each other; where two would overlap otherwise, the
// later one goes to a track of the same name beside it. Times are
// microseconds from the request's arrival.
std::string ChromeTrace(const TraceRecord& record);

}  // namespace sluice::trace

#endif  // SLUICE_COMMON_TRACE_CHROME_TRACE_H_
