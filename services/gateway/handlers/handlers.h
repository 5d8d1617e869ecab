#ifndef SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_
#define SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/json_fwd.h"
#include "common/http/router.h"
#include "common/openai/request_cost.h"
#include "services/gateway/readiness.h"
#include "services/gateway/request_rules.h"

namespace sluice::trace {
class TraceStore;
}  // namespace sluice::trace

namespace sluice {
class EngineLoop;
class TurnQueue;
}  // namespace sluice

namespace sluice::gateway {

class GatewayMetrics;
class StreamJournal;
struct ServedModel;

inline constexpr std::string_view kChatPath = "/v1/chat/completions";
inline constexpr std::string_view kCompletionsPath = "/v1/completions";

// The objects that handlers use. All of them outlive the server.
struct HandlerContext {
  const ServedModel& model;
  EngineLoop& engine;
  GatewayMetrics& metrics;
  // Parses and tokenizes large prompts and writes large answers; null: on the
  // loop.
  TurnQueue* work = nullptr;
  // Any thread; must not block.
  std::function<GatewayReadiness()> readiness;
  trace::TraceStore* traces = nullptr;  // null: no request is traced
  bool keys_asked = false;  // API keys: clients without one see no addresses
  // Refuses unknown fields of a body instead of ignoring them.
  bool strict_fields = false;
  openai::CostLimits limits = {};  // per request
  RequestRules rules = {};
  StreamJournal* streams = nullptr;  // null: no request is kept
  // Returns what of the stages decides over tokens beside the model: numerics
  // and weights' type of the pipeline that was joined; empty: none was yet. Any
  // thread; must not block.
  std::function<std::string()> arithmetic = nullptr;
  // Compiles grammars; null: `work` does.
  TurnQueue* compiles = nullptr;
};

// Returns the request's audience: a key holder has a tenant. Without keys a
// client on this machine counts as one.
Audience AudienceOf(bool keys_asked, const http::HttpRequest& request);

// Each function adds the routes of one file.
void AddChatHandler(http::Router& router, const HandlerContext& context);
void AddCompletionsHandler(http::Router& router, const HandlerContext& context);
// The same answers, to an exchange whose body a handler has set.
void RunChat(const HandlerContext& context,
             std::shared_ptr<http::Exchange> exchange);
void RunCompletion(const HandlerContext& context,
                   std::shared_ptr<http::Exchange> exchange);
// A recent stream by its request's id.
void AddStreamsHandler(http::Router& router, const HandlerContext& context);
void AddTokenizeHandlers(http::Router& router, const HandlerContext& context);
// Known endpoints of OpenAI's and other servers' APIs that are not built: 404
// says so.
void AddUnbuiltHandlers(http::Router& router);
void AddModelHandlers(http::Router& router, const HandlerContext& context);
void AddHealthHandlers(http::Router& router, const HandlerContext& context);
// A trace by its request's id.
void AddTraceHandler(http::Router& router, const HandlerContext& context);
// The list of ids, with --debug-endpoints: an id is enough to read a trace.
void AddTraceListHandler(http::Router& router, const HandlerContext& context);
void AddDebugHandlers(http::Router& router, const HandlerContext& context);
void AddPageHandlers(http::Router& router);

// The description of the served API.
struct ApiDocumentOptions {
  bool keys_asked = false;
  bool debug_endpoints = false;
  bool strict_fields = false;
  size_t max_stop_strings = RequestRules().max_stop_strings;
};
// Returns GET /openapi.json: services/gateway/openapi.json, with the fields of
// the parsers and their rows of API.md in it. Names no model and no address.
Json ApiDocument(const ApiDocumentOptions& options);
void AddApiDocumentHandler(http::Router& router,
                           const ApiDocumentOptions& options);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_
