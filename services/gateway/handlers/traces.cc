#include <memory>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/concurrency/work_queue.h"
#include "common/openai/error.h"
#include "common/trace/chrome_trace.h"
#include "common/trace/trace_json.h"
#include "common/trace/trace_store.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

constexpr std::string_view kTracesPath = "/debug/traces/";

void AnswerTrace(const HandlerContext& context,
                 std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  const std::string id = request.path.substr(kTracesPath.size());
  const bool chrome = request.query == "format=chrome";
  if (!chrome && !request.query.empty()) {
    exchange->Send(ErrorResponse(ToApiError(InvalidArgument(
        "the only query is format=chrome, got '", request.query, "'"))));
    return;
  }
  auto record = context.traces->Find(id, request.tenant);
  if (!record.ok()) {
    exchange->Send(ErrorResponse(ToApiError(record.status())));
    return;
  }
  // A long answer's trace takes a while to write out.
  auto work = [exchange, record = *std::move(record), chrome] {
    if (exchange->gone()) return;
    const auto response = std::make_shared<HttpResponse>();
    response->body = chrome ? ChromeTrace(*record) : TraceJson(*record);
    exchange->Post(
        [exchange, response] { exchange->Send(std::move(*response)); });
  };
  if (context.work == nullptr) {
    work();
  } else if (const Status pushed = context.work->Push(std::move(work));
             !pushed.ok()) {
    exchange->Send(ErrorResponse(ToApiError(pushed)));
  }
}

}  // namespace

void AddTraceHandler(Router& router, const HandlerContext& context) {
  router.Add("GET", "/debug/traces/*",
             [context](std::shared_ptr<Exchange> exchange) {
               AnswerTrace(context, std::move(exchange));
             });
}

void AddTraceListHandler(Router& router, const HandlerContext& context) {
  router.Add("GET", "/debug/traces",
             [context](std::shared_ptr<Exchange> exchange) {
               HttpResponse response;
               response.body = DumpJson(
                   {{"request_ids",
                     context.traces->RequestIds(exchange->request().tenant)}});
               exchange->Send(std::move(response));
             });
}

}  // namespace sluice::gateway
