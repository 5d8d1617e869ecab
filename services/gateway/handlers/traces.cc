#include <memory>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/serving/error.h"
#include "common/serving/text_work.h"
#include "common/trace/chrome_trace.h"
#include "common/trace/trace_json.h"
#include "common/trace/trace_store.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

constexpr std::string_view kTracesPath = "/debug/traces/";
// Memory while a trace is written.
constexpr size_t kTraceMemory = size_t{4} << 20;

void AnswerTrace(const serving::ServingContext& context,
                 std::shared_ptr<http::Exchange> exchange) {
  const http::HttpRequest& request = exchange->request();
  const std::string id = request.path.substr(kTracesPath.size());
  const bool chrome = request.query == "format=chrome";
  if (!chrome && !request.query.empty()) {
    exchange->SendError(serving::ToApiError(InvalidArgument(
        "the only query is format=chrome, got '", request.query, "'")));
    return;
  }
  auto record = context.traces->Find(id, request.tenant);
  if (!record.ok()) {
    exchange->SendError(serving::ToApiError(record.status()));
    return;
  }
  // Writing a long answer's trace takes a while.
  serving::RunTextWork({context.work, context.metrics}, exchange, kTraceMemory,
                       [exchange, record = *std::move(record), chrome] {
                         const auto response =
                             std::make_shared<http::HttpResponse>();
                         response->body = chrome ? trace::ChromeTrace(*record)
                                                 : trace::TraceJson(*record);
                         exchange->Post([exchange, response] {
                           exchange->Send(std::move(*response));
                         });
                       });
}

}  // namespace

void AddTraceHandler(http::Router& router,
                     const serving::ServingContext& context) {
  router.Add("GET", "/debug/traces/*",
             [context](std::shared_ptr<http::Exchange> exchange) {
               AnswerTrace(context, std::move(exchange));
             });
}

void AddTraceListHandler(http::Router& router,
                         const serving::ServingContext& context) {
  router.Add("GET", "/debug/traces",
             [context](std::shared_ptr<http::Exchange> exchange) {
               http::HttpResponse response;
               response.body = DumpJson(
                   {{"request_ids",
                     context.traces->RequestIds(exchange->request().tenant)}});
               exchange->Send(std::move(response));
             });
}

}  // namespace sluice::gateway
