// What the operator lets requests ask for: names, stop strings, max_tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

class GatewayRulesTest : public ::testing::Test {
 protected:
  void TearDown() override { engine_.EndAll(); }

  // By the rules as they are now.
  std::shared_ptr<http::FakeExchange> Route(
      std::shared_ptr<http::FakeExchange> exchange) {
    serving::ServingContext context{model_, engine_.loop(), metrics_, nullptr,
                                    [] { return serving::Readiness{true}; }};
    context.rules = rules_;
    http::Router router;
    AddDialects(router, context);
    AddModelHandlers(router, context);
    router.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Get(std::string_view path) {
    auto exchange = http::Post(path, "");
    exchange->request().method = "GET";
    return Route(std::move(exchange));
  }
  std::shared_ptr<http::FakeExchange> Chat(const std::string& fields) {
    return Route(http::Post(
        "/v1/chat/completions",
        Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],", fields,
            "}")));
  }
  std::shared_ptr<http::FakeExchange> Complete(const std::string& fields) {
    return Route(http::Post("/v1/completions", "{" + fields + "}"));
  }

  serving::ServedModel model_ = FakeModel();
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"fake"}};
  serving::RequestRules rules_;
};

TEST_F(GatewayRulesTest, EveryNameOfTheModelIsTakenAndTheFirstShown) {
  model_.aliases = {"org/other", "gpt-4"};
  for (const char* name : {"fake", "org/other", "gpt-4"}) {
    const size_t index = engine_.submitted();
    const auto on = Chat(Cat("\"model\":\"", name, "\""));
    ASSERT_EQ(engine_.submitted(), index + 1) << name;
    engine_.End(index, FinishReason::kStop);
    EXPECT_EQ(on->Body()["model"], "fake");
  }
  EXPECT_EQ(Chat("\"model\":\"gpt-5\"")->responses[0].status, 404);
  const Json models = Get("/v1/models")->Body()["data"];
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0]["id"], "fake");
  EXPECT_EQ(models[1]["id"], "org/other");
  EXPECT_EQ(models[2]["max_model_len"], 4096);
  EXPECT_EQ(Get("/v1/models/org/other")->Body()["id"], "org/other");
}

TEST_F(GatewayRulesTest, AnyNameIsTakenIfTheOperatorSaysSo) {
  model_.any_name = true;
  const auto on = Chat("\"model\":\"another-model\"");
  ASSERT_EQ(engine_.submitted(), 1u);
  engine_.End(0, FinishReason::kStop);
  EXPECT_EQ(on->Body()["model"], "fake");
  EXPECT_EQ(Get("/v1/models/another-model")->Body()["id"], "fake");
  EXPECT_EQ(Get("/v1/models")->Body()["data"].size(), 1u);
}

TEST_F(GatewayRulesTest, MaxTokensBeyondTheRoomAreCutIfTheOperatorSaysSo) {
  engine_.set_max_context(20);
  rules_.cut_max_tokens = true;
  const auto on = Chat("\"max_tokens\":64000");
  ASSERT_EQ(engine_.submitted(), 1u);
  EXPECT_EQ(engine_.request(0).max_tokens, 14);
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->Body()["choices"][0]["finish_reason"], "length");
  Chat("\"max_completion_tokens\":14");
  EXPECT_EQ(engine_.request(1).max_tokens, 14);
  Complete("\"prompt\":\"abc\"");
  EXPECT_EQ(engine_.request(2).max_tokens, 16) << "the default stays";
  Complete(
      "\"prompt\":\"0123456789012345678901234\",\"max_tokens\":64000,"
      "\"truncate_prompt_tokens\":-1");
  EXPECT_EQ(engine_.request(3).prompt_tokens.size(), 19u);
  EXPECT_EQ(engine_.request(3).max_tokens, 1);
  EXPECT_EQ(Chat("\"max_tokens\":64000,\"min_tokens\":15")
                ->Body()["error"]["message"],
            "min_tokens: must not exceed max_tokens, which is 14 beside this "
            "prompt, got 15");
  EXPECT_EQ(
      Complete("\"prompt\":\"01234567890123456789\"")->Body()["error"]["code"],
      "context_length_exceeded")
      << "a prompt is never cut";
}

TEST_F(GatewayRulesTest, StopStringsAreAsManyAsTheOperatorAllows) {
  const auto with = [this](int count) {
    std::string stops;
    for (int i = 0; i < count; ++i) {
      stops += Cat(i > 0 ? "," : "", "\"s", i, "\"");
    }
    return Complete(Cat("\"prompt\":\"a\",\"stop\":[", stops, "]"));
  };
  with(32);
  EXPECT_EQ(engine_.submitted(), 1u);
  EXPECT_EQ(with(33)->Body()["error"]["message"],
            "stop: has 33 strings, limit 32");
  rules_.max_stop_strings = 2;
  EXPECT_EQ(with(3)->Body()["error"]["message"],
            "stop: has 3 strings, limit 2");
}

}  // namespace
}  // namespace sluice::gateway
