// POST /v1/embeddings over a scripted engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/base/json.h"
#include "common/dialects/openai/handlers.h"
#include "services/gateway/gateway_metrics.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kHidden = 4;

serving::ServedModel EmbeddingModel() {
  serving::ServedModel model = FakeModel();
  model.hidden_size = kHidden;
  model.embeddings.pooling = serving::Pooling::kMean;
  return model;
}

// The hidden states of a prompt: rows of the token's id and of zeros.
FinalEvent Hidden(const GenerateRequest& request, TokenSink& sink) {
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_NE(request.sampling.hidden, HiddenWanted::kNone);
  for (const TokenId token : request.prompt_tokens) {
    TokenEvent event;
    event.logits = {static_cast<float>(token), 1, 0, 0};
    sink.OnTokens(std::move(event));
  }
  return {.reason = FinishReason::kLength};
}

class EmbeddingsTest : public ::testing::Test {
 protected:
  EmbeddingsTest() { openai::AddEmbeddingsHandler(router_, context_); }
  void TearDown() override { engine_.EndAll(); }

  std::shared_ptr<http::FakeExchange> Ask(std::string body) {
    auto exchange = http::Post("/v1/embeddings", std::move(body));
    exchange->deferred = true;
    router_.Route(exchange);
    engine_.Settle(*exchange);
    return exchange;
  }
  std::string MessageOf(std::string body) {
    const auto on = Ask(std::move(body));
    EXPECT_EQ(on->responses.at(0).status, 400);
    return on->Body().at("error").at("message").get<std::string>();
  }

  serving::ServedModel model_ = EmbeddingModel();
  ScriptedEngine engine_{Hidden};
  GatewayMetrics metrics_{{"fake"}};
  serving::ServingContext context_{model_, engine_.loop(), metrics_, nullptr,
                                   [] { return serving::Readiness{true}; }};
  http::Router router_;
};

TEST_F(EmbeddingsTest, AnswersInTheOrderOfTheInputs) {
  const Json body = Ask(R"({"input":[[3,5],[0]],"model":"fake"})")->Body();
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["model"], "fake");
  EXPECT_EQ(DumpJson(body["usage"]), R"({"prompt_tokens":3,"total_tokens":3})");
  ASSERT_EQ(body["data"].size(), 2u);
  EXPECT_EQ(body["data"][0]["index"], 0);
  // The mean of (3, 1) and (5, 1).
  EXPECT_EQ(DumpJson(body["data"][0]["embedding"]),
            "[0.9701425,0.24253562,0,0]");
  EXPECT_EQ(DumpJson(body["data"][1]["embedding"]), "[0,1,0,0]");
}

TEST_F(EmbeddingsTest, TakesManyInputsInTurn) {
  std::string inputs = "[0]";
  for (int i = 1; i < 200; ++i) inputs += Cat(",[", i, "]");
  const Json body = Ask(Cat(R"({"input":[)", inputs, "]}"))->Body();
  ASSERT_EQ(body["data"].size(), 200u);
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_EQ(body["data"][i]["index"], i);
    EXPECT_EQ(body["data"][i]["embedding"][0] == 0, i == 0);
  }
}

TEST_F(EmbeddingsTest, GivesBytesAndFewerDimensions) {
  const auto bytes = [this](const std::string& more) {
    const Json body =
        Ask(Cat(R"({"input":[0],"encoding_format":"base64")", more, "}"))
            ->Body();
    std::string out;
    EXPECT_TRUE(absl::Base64Unescape(
        body["data"][0]["embedding"].get<std::string>(), &out));
    return out;
  };
  EXPECT_EQ(bytes(""), std::string("\0\0\0\0\0\0\x80\x3f\0\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(bytes(R"(,"dimensions":2)").size(), 8u);
  EXPECT_THAT(MessageOf(R"({"input":[0],"dimensions":5})"),
              HasSubstr("dimensions: must be at most 4"));
}

TEST_F(EmbeddingsTest, RefusesByName) {
  engine_.set_max_context(4);
  EXPECT_THAT(MessageOf("{}"), HasSubstr("input: is missing"));
  EXPECT_THAT(MessageOf(R"({"input":[]})"), HasSubstr("must not be empty"));
  EXPECT_THAT(MessageOf(R"({"input":""})"), HasSubstr("must not be empty"));
  EXPECT_THAT(MessageOf(R"({"input":[[1],[1,2,3,4,5]]})"),
              HasSubstr("input 1"));
  EXPECT_THAT(MessageOf(R"({"input":"a","encoding_format":"int8"})"),
              HasSubstr("encoding_format"));
  EXPECT_EQ(Ask(R"({"input":"a","model":"other"})")->responses[0].status, 404);
  const auto cut = Ask(R"({"input":[1,2,3,4,5],"truncate_prompt_tokens":-1})");
  EXPECT_EQ(cut->Body()["usage"]["prompt_tokens"], 4);
  std::string many = "[0]";
  for (int i = 0; i < 2048; ++i) many += ",[0]";
  EXPECT_THAT(MessageOf(Cat(R"({"input":[)", many, "]}")),
              HasSubstr("has 2049 prompts, limit 2048"));
}

TEST_F(EmbeddingsTest, AStrictServerRefusesFieldsThatAreNotKnown) {
  context_.strict_fields = true;
  http::Router strict;
  openai::AddEmbeddingsHandler(strict, context_);
  const auto ask = [&](std::string_view more) {
    auto on = http::Post(
        "/v1/embeddings",
        Cat(R"({"input":[0],"user":"u","encoding_format":"float")", more, "}"));
    on->deferred = true;
    strict.Route(on);
    engine_.Settle(*on);
    return on;
  };
  EXPECT_EQ(ask("")->responses.at(0).status, 200);
  const Json error = ask(R"(,"wich":1)")->Body()["error"];
  EXPECT_EQ(error["param"], "wich");
  EXPECT_EQ(error["code"], "unknown_parameter");
}

TEST_F(EmbeddingsTest, AModelWithoutPoolingSaysWhichKeyIsMissing) {
  model_.embeddings = {serving::Pooling::kNone, "its GGUF has no key x"};
  EXPECT_EQ(MessageOf(R"({"input":"a"})"),
            "model fake has no embeddings: its GGUF has no key x");
}

TEST_F(EmbeddingsTest, OneFailureIsTheAnswer) {
  ScriptedEngine failing([](const GenerateRequest&, TokenSink&) {
    FinalEvent end;
    end.reason = FinishReason::kError;
    end.status = Unavailable("stage 1 was lost");
    return end;
  });
  serving::ServingContext context{model_, failing.loop(), metrics_, nullptr,
                                  [] { return serving::Readiness{true}; }};
  http::Router router;
  openai::AddEmbeddingsHandler(router, context);
  const auto on = http::Post("/v1/embeddings", R"({"input":[[1],[2]]})");
  on->deferred = true;
  router.Route(on);
  failing.Settle(*on);
  ASSERT_EQ(on->responses.size(), 1u);
  EXPECT_EQ(on->responses[0].status, 503);
}

}  // namespace
}  // namespace sluice::gateway
