#ifndef SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_
#define SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_

#include <functional>
#include <memory>

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
struct ServedModel;

// What handlers work with. All of it outlives the server.
struct HandlerContext {
  const ServedModel& model;
  EngineLoop& engine;
  GatewayMetrics& metrics;
  // Where large prompts are parsed and tokenized, and large answers written;
  // null: on the loop.
  TurnQueue* work = nullptr;
  // Any thread; must not block.
  std::function<GatewayReadiness()> readiness;
  trace::TraceStore* traces = nullptr;  // null: no request is traced
  bool keys_asked = false;  // API keys: who has none is told no addresses
  // Fields of a body that are not known are refused, not ignored.
  bool strict_fields = false;
  openai::CostLimits limits = {};  // of one request
  RequestRules rules = {};
};

// Who asks: a key holder has a tenant; where no keys are asked for, a client on
// this machine counts as one.
Audience AudienceOf(bool keys_asked, const http::HttpRequest& request);

// Each adds the routes of one file.
void AddChatHandler(http::Router& router, const HandlerContext& context);
void AddCompletionsHandler(http::Router& router, const HandlerContext& context);
void AddTokenizeHandlers(http::Router& router, const HandlerContext& context);
// Endpoints of OpenAI's and other servers' APIs that are known but not built:
// 404, saying so.
void AddUnbuiltHandlers(http::Router& router);
void AddModelHandlers(http::Router& router, const HandlerContext& context);
void AddHealthHandlers(http::Router& router, const HandlerContext& context);
// A trace by its request's id.
void AddTraceHandler(http::Router& router, const HandlerContext& context);
// The ids; for --debug-endpoints, since an id is all it takes to see a trace.
void AddTraceListHandler(http::Router& router, const HandlerContext& context);
void AddDebugHandlers(http::Router& router, const HandlerContext& context);
void AddPageHandlers(http::Router& router);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HANDLERS_HANDLERS_H_
