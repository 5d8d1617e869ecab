#ifndef SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/concurrency/turn_queue.h"
#include "common/http/error_answer.h"
#include "common/http/http_server.h"
#include "common/http/router.h"
#include "services/gateway/access_log.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"
#include "tests/services/gateway/http_client.h"

namespace sluice::gateway {

inline std::string PostOf(std::string_view path, std::string_view body,
                          std::string_view headers = "") {
  return Cat("POST ", path,
             " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n",
             headers, "\r\n", body);
}

inline std::string ChatOf(std::string_view fields) {
  return PostOf("/v1/chat/completions",
                Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
                    fields.empty() ? "" : ",", fields, "}"));
}

// The server over real sockets, with a scripted engine behind it.
class GatewayHttpTest : public ::testing::Test {
 protected:
  GatewayHttpTest() { engine_.PlayOnThread(); }
  void SetUp() override { Start({}); }
  // A client that asks for a stream and reads nothing of it, which is more
  // than the sockets' buffers hold: it is cut off, and counted.
  void ExpectASlowReaderIsCutOff() {
    Client client(port(), /*receive_buffer=*/4096);
    ASSERT_TRUE(client.Send(ChatOf("\"stream\":true,\"ignore_eos\":true")));
    ASSERT_TRUE(engine_.AwaitSubmitted(1));
    const std::string text(20000, 'x');
    for (int i = 0; i < 20 && server_->stats().slow_readers == 0; ++i) {
      engine_.Text(0, text);
    }
    EXPECT_TRUE(engine_.AwaitCancelled(1));
    EXPECT_EQ(server_->stats().slow_readers, 1);
    EXPECT_EQ(server_->stats().disconnects, 1);
  }
  // Another server, with other limits, instead of the one that runs.
  void Restart(const http::HttpLimits& limits) {
    server_.reset();
    Start(limits);
  }
  void TearDown() override {
    // As GatewayServer::Stop: what makes tokens ends first.
    engine_.EndAll();
    server_.reset();
  }

  void Start(const http::HttpLimits& limits) {
    HandlerContext context{model_, engine_.loop(), metrics_, work_,
                           [this] { return readiness_; }};
    context.keys_asked = options_.screen != nullptr;
    context.rules = rules_;
    http::Router router;
    AddChatHandler(router, context);
    AddCompletionsHandler(router, context);
    AddTokenizeHandlers(router, context);
    AddHealthHandlers(router, context);
    AddModelHandlers(router, context);
    router.Add("GET", "/large", [](std::shared_ptr<http::Exchange> exchange) {
      http::HttpResponse response;
      response.body.assign(kLargeAnswer, 'x');
      exchange->Send(std::move(response));
    });
    router.Add("GET", "/burst", [](std::shared_ptr<http::Exchange> exchange) {
      exchange->BeginStream({});
      const std::string chunk(size_t{16} << 10, 'x');
      for (size_t sent = 0; sent < kLargeAnswer; sent += chunk.size()) {
        exchange->SendChunk(chunk);
      }
      exchange->EndStream();
    });
    if (more_routes_) more_routes_(router);
    http::HttpServerOptions options = options_;
    options.listen = "127.0.0.1:0";
    options.limits = limits;
    options.handler = [router](std::shared_ptr<http::Exchange> exchange) {
      router.Route(std::move(exchange));
    };
    options.observer = [this](const http::ExchangeSummary& summary) {
      metrics_.OnExchange(summary);
      if (access_log_) LogAccess(summary);
    };
    options.error_response = http::TransportError;
    auto server = http::HttpServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  int port() const { return server_->port(); }
  // Waits until `condition` holds of the server's figures; false after a
  // minute.
  template <typename Condition>
  bool Await(Condition condition) const {
    const TimePoint end = Clock::now() + std::chrono::minutes(1);
    while (!condition(server_->stats())) {
      if (Clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  // What /large answers with, and /burst in chunks that are all sent at once:
  // more than the sockets' buffers hold.
  static constexpr size_t kLargeAnswer = size_t{16} << 20;

  const ServedModel model_ = FakeModel(1 << 20);
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{.model_name = "fake", .key_names = true}};
  // Of the next Start: keys, CORS, text threads; what /readyz says.
  http::HttpServerOptions options_;
  std::function<void(http::Router&)> more_routes_;
  bool access_log_ = false;
  RequestRules rules_;
  TurnQueue* work_ = nullptr;
  GatewayReadiness readiness_{true};
  std::unique_ptr<http::HttpServer> server_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_
