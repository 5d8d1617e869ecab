#ifndef SLUICE_TESTS_SERVICES_GATEWAY_FIELDS_FIXTURE_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_FIELDS_FIXTURE_H_

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {

// The handlers that take a request's fields, over the fake model and an engine
// that the test plays.
class GatewayFieldsTest : public ::testing::Test {
 protected:
  GatewayFieldsTest()
      : context_{model_, engine_.loop(), metrics_, nullptr, {}} {
    context_.readiness = [] { return serving::Readiness{true}; };
    AddRoutes(router_);
  }

  void TearDown() override { engine_.EndAll(); }

  void AddRoutes(http::Router& router) {
    AddDialects(router, context_);
    AddUnbuiltHandlers(router);
  }

  std::shared_ptr<http::FakeExchange> Route(std::string_view path,
                                            std::string body,
                                            http::HttpHeaders headers = {}) {
    auto exchange = http::Post(path, std::move(body));
    exchange->request().headers = std::move(headers);
    router_.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Chat(const std::string& fields,
                                           http::HttpHeaders headers = {}) {
    return Route("/v1/chat/completions",
                 Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
                     fields.empty() ? "" : ",", fields, "}"),
                 std::move(headers));
  }
  std::shared_ptr<http::FakeExchange> Complete(const std::string& fields) {
    return Route("/v1/completions", "{\"prompt\":\"hello\"," + fields + "}");
  }
  const SamplingParams& Sampling(size_t sequence) {
    return requests_.emplace_back(engine_.request(sequence)).sampling;
  }
  // The one choice's text when its tokens are `tokens`.
  std::string TextOf(const std::string& fields, std::vector<TokenId> tokens,
                     std::optional<TokenId> stop_token = std::nullopt) {
    const size_t sequence = engine_.submitted();
    const auto on = Complete(fields);
    TokenEvent event;
    for (const TokenId token : tokens) event.tokens.push_back({token, {}, {}});
    engine_.Tokens(sequence, std::move(event));
    FinalEvent end;
    end.stop_token = stop_token;
    engine_.End(sequence, end);
    return on->Body()["choices"][0]["text"];
  }
  static std::string ErrorOf(const std::shared_ptr<http::FakeExchange>& on) {
    EXPECT_EQ(on->responses.at(0).status, 400);
    return on->Body()["error"]["message"];
  }

  serving::ServedModel model_ = FakeModel();
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"fake"}};
  serving::ServingContext context_;
  http::Router router_;
  std::deque<GenerateRequest> requests_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_FIELDS_FIXTURE_H_
