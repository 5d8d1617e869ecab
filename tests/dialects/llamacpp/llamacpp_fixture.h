#ifndef SLUICE_TESTS_DIALECTS_LLAMACPP_LLAMACPP_FIXTURE_H_
#define SLUICE_TESTS_DIALECTS_LLAMACPP_LLAMACPP_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/dialects/llamacpp/handlers.h"
#include "common/http/router.h"
#include "common/serving/dialect.h"
#include "common/serving/served_model.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/http/fake_exchange.h"
#include "tests/services/gateway/fakes.h"
#include "tests/serving/fake_text.h"

namespace sluice::llamacpp {

// The dialect alone, with a scripted engine behind it.
class LlamacppTest : public ::testing::Test {
 protected:
  void TearDown() override { engine_.EndAll(); }

  serving::ServingContext Context() {
    serving::ServingContext context{model_, engine_.loop(), metrics_, nullptr,
                                    [] { return serving::Readiness{true}; }};
    context.rules.event_ids = event_ids_;
    return context;
  }
  std::shared_ptr<http::FakeExchange> Run(
      std::shared_ptr<http::FakeExchange> exchange) {
    static constexpr serving::Dialect kDialects[] = {kDialect};
    http::Router router;
    serving::AddDialects(kDialects, router, Context());
    gateway::AddServerStateHandlers(router, Context());
    exchange->format = kDialect.format;
    router.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Ask(
      std::string body, std::string_view path = kCompletionPath) {
    return Run(http::Post(path, std::move(body)));
  }
  // Returns the error object of a refused request.
  Json Refusal(std::string body, std::string_view path = kCompletionPath) {
    const auto on = Ask(std::move(body), path);
    EXPECT_GE(on->responses.at(0).status, 400);
    return on->Body().at("error");
  }
  // Tells sequence `sequence` of a token with its log probability.
  void Token(size_t sequence, TokenId token, float logprob) {
    TokenEvent event;
    event.tokens.push_back(serving::WithLogprob(token, logprob));
    event.cached_tokens = 2;
    engine_.Tokens(sequence, std::move(event));
  }
  void EndOfText(size_t sequence) {
    FinalEvent end;
    end.reason = FinishReason::kStop;
    end.stop_token = serving::kFakeEos;
    end.stop_result = {serving::kFakeEos, {}, {}};
    end.stats.cached_tokens = 2;
    engine_.End(sequence, std::move(end));
  }

  bool event_ids_ = false;
  serving::ServedModel model_ = gateway::FakeModel(64);
  gateway::ScriptedEngine engine_;
  gateway::GatewayMetrics metrics_{{"fake"}};
};

}  // namespace sluice::llamacpp

#endif  // SLUICE_TESTS_DIALECTS_LLAMACPP_LLAMACPP_FIXTURE_H_
