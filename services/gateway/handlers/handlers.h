#ifndef SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_
#define SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/json_fwd.h"
#include "common/http/router.h"
#include "common/serving/context.h"
#include "services/gateway/audience.h"

namespace sluice::gateway {

using serving::ServingContext;

// Returns the request's audience: a key holder has a tenant. Without keys a
// client on this machine counts as one.
Audience AudienceOf(bool keys_asked, const http::HttpRequest& request);

// Each function adds the routes of one file.
// Known endpoints of OpenAI's and other servers' APIs that are not built: 404
// says so.
void AddUnbuiltHandlers(http::Router& router);
void AddModelHandlers(http::Router& router, const ServingContext& context);
// llama.cpp's GET /props and GET /slots.
void AddServerStateHandlers(http::Router& router,
                            const ServingContext& context);
void AddHealthHandlers(http::Router& router, const ServingContext& context);
// A trace by its request's id.
void AddTraceHandler(http::Router& router, const ServingContext& context);
// The list of ids, with --debug-endpoints: an id is enough to read a trace.
void AddTraceListHandler(http::Router& router, const ServingContext& context);
void AddDebugHandlers(http::Router& router, const ServingContext& context);
void AddPageHandlers(http::Router& router);

// The description of the served API.
struct ApiDocumentOptions {
  bool keys_asked = false;
  bool debug_endpoints = false;
  bool strict_fields = false;
  size_t max_stop_strings = serving::RequestRules().max_stop_strings;
};
// Returns GET /openapi.json: services/gateway/openapi.json, with the fields of
// the parsers and their rows of API.md in it. Names no model and no address.
Json ApiDocument(const ApiDocumentOptions& options);
void AddApiDocumentHandler(http::Router& router,
                           const ApiDocumentOptions& options);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_
