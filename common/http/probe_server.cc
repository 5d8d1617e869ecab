#include "common/http/probe_server.h"

#include <utility>

namespace sluice::http {
namespace {

constexpr int kMaxConnections = 64;
constexpr size_t kMaxRequestBytes = size_t{8} << 10;
constexpr auto kMaxTime = std::chrono::seconds(5);

HttpResponse Text(int status, std::string body) {
  return {status, "text/plain", {}, std::move(body)};
}

HttpResponse AnswerTo(const HttpRequest& request, const ProbeOptions& options) {
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse refused = Text(405, "method not allowed\n");
    refused.headers.emplace_back("Allow", "GET, HEAD");
    return refused;
  }
  if (request.path == "/livez") return Text(200, "ok\n");
  if (request.path == "/readyz") {
    const Readiness readiness =
        options.readiness ? options.readiness() : Readiness{true, "{}"};
    return {
        readiness.ready ? 200 : 503, "application/json", {}, readiness.json};
  }
  const auto page = options.pages.find(request.path);
  if (page != options.pages.end()) return page->second();
  return Text(404, "not found; there are /metrics, /livez and /readyz\n");
}

}  // namespace

StatusOr<std::unique_ptr<HttpServer>> StartProbeServer(ProbeOptions options) {
  HttpServerOptions http;
  http.listen = options.listen;
  http.threads = 1;
  http.thread_name = "metrics";
  http.keep_alive = false;
  http.limits.header_bytes = http.limits.body_bytes = kMaxRequestBytes;
  http.limits.connections = http.limits.connections_per_client =
      kMaxConnections;
  http.limits.header_time = http.limits.body_time = http.limits.write_time =
      kMaxTime;
  http.handler = [options = std::move(options)](
                     const std::shared_ptr<Exchange>& exchange) {
    HttpResponse answer = AnswerTo(exchange->request(), options);
    answer.headers.emplace_back("Cache-Control", "no-store");
    exchange->Send(std::move(answer));
  };
  return HttpServer::Start(std::move(http));
}

}  // namespace sluice::http
