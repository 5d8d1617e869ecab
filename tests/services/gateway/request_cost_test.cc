// What a request would take is known before any of it is spent: above a limit
// it is refused, and the answer names the fields, the value and the limit.
#include "common/serving/request_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/json.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;

class RequestCostTest : public ::testing::Test {
 protected:
  explicit RequestCostTest(int positions = 131072)
      : model_(FakeModel(positions)),
        context_{model_, engine_.loop(), metrics_, nullptr, {}} {
    context_.readiness = [] { return serving::Readiness{true}; };
    engine_.set_max_context(positions);
  }

  void TearDown() override { engine_.EndAll(); }

  std::shared_ptr<http::FakeExchange> Route(std::string_view path,
                                            const Json& body) {
    http::Router router;
    AddDialects(router, context_);
    AddDebugHandlers(router, context_);
    auto exchange = http::Post(path, DumpJson(body));
    router.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Chat(Json body, size_t bytes = 2) {
    body["messages"] =
        Json::array({{{"role", "user"}, {"content", std::string(bytes, 'h')}}});
    return Route("/v1/chat/completions", body);
  }
  std::shared_ptr<http::FakeExchange> Complete(Json body, size_t bytes) {
    body["prompt"] = std::string(bytes, 'h');
    return Route("/v1/completions", body);
  }
  // The message of a refusal for what it would take; nothing was submitted.
  std::string Refusal(const std::shared_ptr<http::FakeExchange>& on) {
    if (on->responses.size() != 1) return "not answered";
    EXPECT_EQ(on->responses[0].status, 400);
    EXPECT_EQ(on->Body()["error"]["code"], "request_too_large");
    EXPECT_EQ(engine_.submitted(), 0u);
    return on->Body()["error"]["message"];
  }

  serving::ServedModel model_;
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"fake"}};
  serving::ServingContext context_;
};

TEST_F(RequestCostTest, PromptLogprobsOfManyChoicesAreRefusedBeforeTheyRun) {
  const Json body{{"n", 128}, {"prompt_logprobs", 20}, {"max_tokens", 1}};
  const std::string message = Refusal(Complete(body, 1001));
  EXPECT_THAT(message, HasSubstr("limit 67108864"));
  EXPECT_THAT(message, HasSubstr("n 128, 1002 tokens of the prompt"));
  EXPECT_THAT(message, HasSubstr("prompt_logprobs 20"));
  EXPECT_THAT(message, HasSubstr("--max-answer-bytes"));
}

TEST_F(RequestCostTest, EchoWithLogprobsCountsAlsoInAStream) {
  for (const bool stream : {false, true}) {
    const std::string message = Refusal(Complete({{"n", 128},
                                                  {"echo", true},
                                                  {"logprobs", 20},
                                                  {"max_tokens", 0},
                                                  {"stream", stream}},
                                                 1001));
    EXPECT_THAT(message, HasSubstr("echo, logprobs 20"));
  }
}

TEST_F(RequestCostTest, ThePromptsOfOneRequestCountTogether) {
  Json body{{"prompt_logprobs", 20}, {"max_tokens", 1}};
  body["prompt"] = Json::array();
  for (int i = 0; i < 64; ++i) body["prompt"].push_back(std::string(2000, 'p'));
  EXPECT_THAT(Refusal(Route("/v1/completions", body)),
              HasSubstr("the answer may take"));
}

TEST_F(RequestCostTest, LogprobsOfLongCompletionsCountUnlessTheyAreStreamed) {
  const Json body{{"n", 16},
                  {"logprobs", true},
                  {"top_logprobs", 20},
                  {"max_tokens", 10000}};
  EXPECT_THAT(Refusal(Chat(body)), HasSubstr("top_logprobs 20, max_tokens"));
  Json streamed = body;
  streamed["stream"] = true;
  Chat(streamed);
  EXPECT_EQ(engine_.submitted(), 16u);
}

TEST_F(RequestCostTest, MaxTokensThatIsLeftOutIsWhatTheLimitAffords) {
  Chat({{"n", 2}, {"logprobs", true}, {"top_logprobs", 20}});
  ASSERT_EQ(engine_.submitted(), 2u);
  EXPECT_GT(engine_.request(0).max_tokens, 20'000);
  EXPECT_LT(engine_.request(0).max_tokens, 26'000);
}

TEST_F(RequestCostTest, OrdinaryRequestsPass) {
  Chat({{"n", 128}});
  EXPECT_EQ(engine_.submitted(), 128u);
  EXPECT_EQ(engine_.request(0).max_tokens, 131072 - 6) << "all that is left";
  context_.limits.tokenize_bytes = 0;
  Complete({{"logprobs", 5}, {"echo", true}, {"max_tokens", 100}}, 8092);
  Complete({{"prompt_logprobs", 5}, {"max_tokens", 1}}, 8191);
  Chat({{"logprobs", true}, {"top_logprobs", 5}, {"max_tokens", 100}}, 8000);
  Complete({{"max_tokens", 1}, {"n", 128}}, 8191);
  EXPECT_EQ(engine_.submitted(), 128u + 3u + 128u);
}

TEST_F(RequestCostTest, CopiesOfALongPromptCount) {
  EXPECT_THAT(Refusal(Complete({{"n", 128}, {"max_tokens", 1}}, 100'000)),
              HasSubstr("n 128, 100001 tokens of the prompt"));
}

TEST_F(RequestCostTest, AHistoryAboveItsLimitIsRefusedAheadOfItsRendering) {
  context_.limits.history_bytes = 4000;
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    Json body;
    body["messages"] =
        Json::array({{{"role", "user"}, {"content", std::string(5000, 'h')}}});
    const std::string message = Refusal(Route(path, body));
    EXPECT_THAT(message, HasSubstr("limit 4000"));
    EXPECT_THAT(message, HasSubstr("--max-history-bytes"));
    Json calls = Json::array();
    for (int i = 0; i < 8; ++i) {
      calls.push_back({{"function", {{"name", "f"}}}});
    }
    body["messages"] =
        Json::array({{{"role", "assistant"}, {"tool_calls", calls}}});
    EXPECT_THAT(Refusal(Route(path, body)), HasSubstr("8 tool_calls"));
  }
}

TEST_F(RequestCostTest, ATextToTokenizeHasALimitOfItsOwn) {
  context_.limits.tokenize_bytes = 3000;
  const std::string text(3001, 't');
  const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  for (const auto& [path, body] :
       {std::pair<const char*, Json>{"/tokenize", {{"prompt", text}}},
        {"/tokenize", {{"messages", messages}}},
        {"/v1/chat/completions", {{"messages", messages}}},
        {"/v1/completions", {{"prompt", text}}},
        {"/v1/completions",
         {{"prompt", Json::array({"short", text})},
          {"truncate_prompt_tokens", -1}}}}) {
    EXPECT_THAT(Refusal(Route(path, body)), HasSubstr("--max-tokenize-bytes"));
  }
  const auto on = Route("/debug/logits", {{"prompt", text}});
  EXPECT_EQ(on->responses.at(0).status, 400);
  const auto fits = Route("/tokenize", {{"prompt", text.substr(1)}});
  EXPECT_EQ(fits->responses.at(0).status, 200);
}

TEST_F(RequestCostTest, TheTextOfManyTokensHasALimit) {
  context_.limits.answer_bytes = 40;
  const auto tokens = [](int count) {
    return Json{{"tokens", std::vector<TokenId>(count, 'a')}};
  };
  EXPECT_EQ(Route("/detokenize", tokens(10))->responses.at(0).status, 200);
  EXPECT_THAT(Refusal(Route("/detokenize", tokens(11))),
              HasSubstr("the text of 11 tokens may take 44 bytes, limit 40"));
}

TEST(CostLimitsTest, TheTextToTokenizeGrowsWithTheContext) {
  EXPECT_EQ(serving::TokenizeLimit({}, 4096), size_t{1} << 20);
  EXPECT_EQ(serving::TokenizeLimit({}, 131072), size_t{2} << 20);
  EXPECT_EQ(serving::TokenizeLimit({.tokenize_bytes = 5}, 131072), 5u);
}

}  // namespace
}  // namespace sluice::gateway
