#ifndef SLUICE_COMMON_TOOLS_LOAD_SERVER_QUERIES_H_
#define SLUICE_COMMON_TOOLS_LOAD_SERVER_QUERIES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/http/http_client.h"

namespace sluice::load {

// Returns the id of the server's first model.
StatusOr<std::string> ServedModelId(const http::BaseUrl& base);

// Returns the ids of /tokenize for `body`. NOT_FOUND or FAILED_PRECONDITION if
// the server has no such endpoint.
StatusOr<std::vector<int64_t>> Tokenize(const http::BaseUrl& base,
                                        const Json& body);

// Sums over labels, by metric name.
using Metrics = std::map<std::string, double>;

// Returns the sums of a Prometheus text, without lines that are no samples.
Metrics ParseMetrics(const std::string& text);

// Returns the sums of GET /metrics. UNAVAILABLE without an answer;
// FAILED_PRECONDITION, with the status and the server's message, for a refusal.
StatusOr<Metrics> FetchMetrics(const http::BaseUrl& base);

}  // namespace sluice::load

#endif  // SLUICE_COMMON_TOOLS_LOAD_SERVER_QUERIES_H_
