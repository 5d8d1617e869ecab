#ifndef SLUICE_SERVICES_GATEWAY_ACCESS_LOG_H_
#define SLUICE_SERVICES_GATEWAY_ACCESS_LOG_H_

#include "common/http/http_server.h"

namespace sluice::gateway {

// Logs one line about an answered request (HTTP.md lists its fields): figures
// and names, without text of prompts and answers. Any thread.
void LogAccess(const http::ExchangeSummary& summary);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_ACCESS_LOG_H_
