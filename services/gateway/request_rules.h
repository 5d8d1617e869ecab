#ifndef SLUICE_SERVICES_GATEWAY_REQUEST_RULES_H_
#define SLUICE_SERVICES_GATEWAY_REQUEST_RULES_H_

#include <cstddef>

#include "common/http/event_stream.h"

namespace sluice::gateway {

// What the operator lets requests ask for, and how streams are answered.
struct RequestRules {
  size_t max_stop_strings = 32;
  // max_tokens beyond the room that the context leaves is cut to it, not
  // refused.
  bool cut_max_tokens = false;
  http::EventStreamTimes stream_times;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_REQUEST_RULES_H_
