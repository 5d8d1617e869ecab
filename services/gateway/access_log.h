#ifndef SLUICE_SERVICES_GATEWAY_ACCESS_LOG_H_
#define SLUICE_SERVICES_GATEWAY_ACCESS_LOG_H_

#include "common/http/http_server.h"

namespace sluice::gateway {

// One line of the log about an answered request (README.md lists its fields):
// figures and names, never a text of a prompt or an answer. Any thread.
void LogAccess(const http::ExchangeSummary& summary);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_ACCESS_LOG_H_
