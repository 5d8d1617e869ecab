#ifndef SLUICE_SERVICES_GATEWAY_DIALECTS_H_
#define SLUICE_SERVICES_GATEWAY_DIALECTS_H_

#include <string_view>

#include "common/http/error_answer.h"
#include "common/http/router.h"
#include "common/serving/context.h"
#include "common/serving/endpoint.h"

namespace sluice::gateway {

// The dialects that are spoken: each is a folder of common/dialects.

// Adds the routes of all dialects, and of their recent streams by id.
void AddDialects(http::Router& router, const serving::ServingContext& context);
// Returns the endpoint of a path that generates; null for another path.
const serving::Endpoint* FindEndpoint(std::string_view path);
// Returns how the client of `request` reads errors: by its dialect.
http::ClientFormat FormatOf(const http::HttpRequest& request);
// Returns whether an answer to the request surely needs no grammar, by its
// body; no for a stream by its id.
bool IsPlainRequest(const http::HttpRequest& request);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_DIALECTS_H_
