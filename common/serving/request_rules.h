#ifndef SLUICE_COMMON_SERVING_REQUEST_RULES_H_
#define SLUICE_COMMON_SERVING_REQUEST_RULES_H_

#include <cstddef>

#include "common/http/event_stream.h"

namespace sluice::serving {

// The operator's rules for requests and streams.
struct RequestRules {
  size_t max_stop_strings = 32;
  // Cuts max_tokens to the rest of the context instead of refusing the request.
  bool cut_max_tokens = false;
  http::EventStreamTimes stream_times;
  bool event_ids = true;  // events have ids, by which a stream is resumed
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_RULES_H_
