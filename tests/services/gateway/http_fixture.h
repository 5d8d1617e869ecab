#ifndef SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/concurrency/turn_queue.h"
#include "common/http/http_server.h"
#include "common/http/router.h"
#include "services/gateway/access_log.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/http/raw_client.h"
#include "tests/services/gateway/fakes.h"
#include "tests/testing/holds_within.h"

namespace sluice::gateway {

using http::Client;
using http::PostOf;

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
    serving::ServingContext context{model_, engine_.loop(), metrics_, work_,
                                    [this] { return readiness_; }};
    context.keys_asked = options_.screen != nullptr;
    context.rules = rules_;
    http::Router router;
    AddDialects(router, context);
    AddHealthHandlers(router, context);
    AddModelHandlers(router, context);
    if (more_routes_) more_routes_(router);
    http::HttpServerOptions options = options_;
    options.listen = "127.0.0.1:0";
    options.limits = limits;
    options.handler = [router](std::shared_ptr<http::Exchange> exchange) {
      router.Route(std::move(exchange));
    };
    options.client_format = FormatOf;
    options.observer = [this](const http::ExchangeSummary& summary) {
      metrics_.OnExchange(summary);
      if (access_log_) LogAccess(summary);
    };
    auto server = http::HttpServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  int port() const { return server_->port(); }
  std::string Ask(std::string_view request) const {
    Client client(port());
    client.Send(request);
    return client.ReceiveAnswer();
  }
  // Waits until `condition` holds of the server's figures; false after a
  // minute.
  template <typename Condition>
  bool Await(Condition condition) const {
    return testing::HoldsWithin(std::chrono::minutes(1),
                                [&] { return condition(server_->stats()); });
  }

  const serving::ServedModel model_ = FakeModel(1 << 20);
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{.model_name = "fake", .key_names = true}};
  // Of the next Start: keys, CORS, text threads; what /readyz says.
  http::HttpServerOptions options_;
  std::function<void(http::Router&)> more_routes_;
  bool access_log_ = false;
  serving::RequestRules rules_;
  TurnQueue* work_ = nullptr;
  serving::Readiness readiness_{true};
  std::unique_ptr<http::HttpServer> server_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_
