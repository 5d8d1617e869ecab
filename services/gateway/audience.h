#ifndef SLUICE_SERVICES_GATEWAY_AUDIENCE_H_
#define SLUICE_SERVICES_GATEWAY_AUDIENCE_H_

#include <string>

#include "common/serving/readiness.h"

namespace sluice::gateway {

// The audience of a text. A client without a key sees no addresses and paths,
// unless the server has no keys and the client is on this machine.
enum class Audience { kAnybody, kKeyHolder };

// {"ready", "why", "not_ready": [{"name", "why"}], "epoch", "term"}, and
// "missing_stages" where there are some; with other gateways "role", and
// "leader" of a standby.
std::string ReadinessJson(const serving::Readiness& readiness,
                          Audience audience);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_AUDIENCE_H_
