// What each endpoint answers, byte for byte where clients look.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/build_info.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The handlers over fakes: a request's bytes in, an answer's bytes out.
class GatewayAnswerTest : public ::testing::Test {
 protected:
  GatewayAnswerTest()
      : context_{model_, engine_.loop(), metrics_, nullptr, {}} {
    context_.readiness = [this] { return readiness_; };
    AddDialects(router_, context_);
    AddModelHandlers(router_, context_);
    AddHealthHandlers(router_, context_);
  }

  // A request and its exchange hold each other until the sequences end.
  void TearDown() override { engine_.EndAll(); }

  std::shared_ptr<http::FakeExchange> Route(std::string_view path,
                                            std::string body) {
    auto exchange = http::Post(path, std::move(body));
    router_.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Get(std::string_view path,
                                          std::string method = "GET") {
    auto exchange = http::Post(path, "");
    exchange->request().method = std::move(method);
    router_.Route(exchange);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> Chat(const std::string& fields) {
    return Route("/v1/chat/completions",
                 Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
                     fields.empty() ? "" : ",", fields, "}"));
  }
  std::shared_ptr<http::FakeExchange> Complete(const std::string& fields) {
    return Route("/v1/completions", "{" + fields + "}");
  }

  const serving::ServedModel model_ = FakeModel();
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"fake"}};
  serving::Readiness readiness_{true, "", {}, 1};
  serving::ServingContext context_;
  http::Router router_;
};

TEST_F(GatewayAnswerTest, AChatIsAnsweredWhole) {
  const auto on = Chat("\"max_tokens\":10");
  ASSERT_EQ(engine_.submitted(), 1u);
  EXPECT_EQ(engine_.request(0).prompt_tokens,
            (std::vector<TokenId>{serving::kFakeBos, serving::kFakeTurn, 'u',
                                  'h', 'i', serving::kFakeTurn}));
  EXPECT_EQ(engine_.request(0).max_tokens, 10);
  EXPECT_THAT(engine_.request(0).eos_token_ids, ElementsAre(serving::kFakeEos));
  engine_.Text(0, "hello");
  EXPECT_TRUE(on->responses.empty());
  FinalEvent end;
  end.stop_token = serving::kFakeEos;
  end.stats.cached_tokens = 4;
  engine_.End(0, end);
  const Json body = on->Body();
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "fake");
  EXPECT_THAT(body["id"].get<std::string>(),
              ::testing::StartsWith("chatcmpl-"));
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "hello");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_TRUE(choice.contains("stop_reason"));
  EXPECT_FALSE(choice.contains("token_ids"));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["usage"]["total_tokens"], 12);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
}

TEST_F(GatewayAnswerTest, AChatStreamHasExactlyTheseEvents) {
  const auto on = Chat("\"stream\":true");
  EXPECT_FALSE(on->streaming) << "no event before the first token";
  engine_.Text(0, "ab");
  engine_.End(0, FinishReason::kLength);
  ASSERT_EQ(on->chunks.size(), 4u);
  EXPECT_EQ(on->responses[0].content_type, "text/event-stream; charset=utf-8");
  const auto events = on->Events();
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(DumpJson(events[0]["choices"]),
            "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":"
            "\"a\"},\"logprobs\":null,\"finish_reason\":null}]");
  EXPECT_EQ(DumpJson(events[1]["choices"][0]["delta"]), "{\"content\":\"b\"}");
  EXPECT_EQ(DumpJson(events[2]["choices"]),
            "[{\"index\":0,\"delta\":{},\"logprobs\":null,"
            "\"finish_reason\":\"length\",\"stop_reason\":null}]");
  EXPECT_FALSE(events[0].contains("usage"));
  EXPECT_EQ(on->chunks[3], "data: [DONE]\n\n");
  EXPECT_TRUE(on->ended);
}

TEST_F(GatewayAnswerTest, AChunkOfTextAloneDiffersInItsTextAlone) {
  const auto on = Chat("\"stream\":true");
  const std::vector<std::string> texts{"a", "b", "\x01", "\"", "e"};
  for (const std::string& text : texts) engine_.Text(0, text);
  ASSERT_EQ(on->chunks.size(), texts.size());
  Json expected = on->Events()[0];
  for (size_t i = 1; i < texts.size(); ++i) {
    expected["choices"][0]["delta"] = {{"content", texts[i]}};
    EXPECT_THAT(on->chunks[i], ::testing::StartsWith(Cat(
                                   "data: ", DumpJson(expected), "\nid: ")));
  }
}

TEST_F(GatewayAnswerTest, UsageComesInItsOwnEventIfAskedFor) {
  const auto on =
      Chat("\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  engine_.Text(0, "a");
  engine_.End(0, FinishReason::kLength);
  const auto events = on->Events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(events[0]["usage"].is_null());
  EXPECT_TRUE(events[0].contains("usage"));
  EXPECT_TRUE(events[2]["choices"].empty());
  EXPECT_EQ(events[2]["usage"]["completion_tokens"], 1);
}

TEST_F(GatewayAnswerTest, ContinuousUsageCountsAsItGoes) {
  const auto on = Chat(
      "\"stream\":true,\"stream_options\":{\"include_usage\":true,"
      "\"continuous_usage_stats\":true}");
  engine_.Text(0, "ab");
  EXPECT_EQ(on->Events()[0]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(on->Events()[1]["usage"]["completion_tokens"], 2);
}

TEST_F(GatewayAnswerTest, AnEmptyAnswerStillHasARole) {
  const auto on = Chat("\"stream\":true");
  engine_.End(0, FinishReason::kStop);
  const auto events = on->Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], "stop");
}

TEST_F(GatewayAnswerTest, AStopStringCancelsAndIsNeverShown) {
  const auto on = Chat("\"stream\":true,\"stop\":\"END\"");
  engine_.Text(0, "okENDmore");
  EXPECT_TRUE(engine_.AwaitCancelled(1));
  std::string text;
  for (const Json& event : on->Events()) {
    const Json& delta = event["choices"][0]["delta"];
    if (delta.contains("content")) text += delta["content"];
  }
  EXPECT_EQ(text, "ok");
  EXPECT_EQ(on->Events().back()["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(on->Events().back()["choices"][0]["stop_reason"], "END");
  EXPECT_EQ(on->chunks.back(), "data: [DONE]\n\n");
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("finished_reason=\"stop\",model_name=\"fake\"} 1\n"));
}

TEST_F(GatewayAnswerTest, ChatLogprobsHaveTokenBytesAndTops) {
  const auto on = Chat("\"logprobs\":true,\"top_logprobs\":1");
  EXPECT_EQ(engine_.request(0).sampling.logprobs, 1);
  TokenEvent event;
  event.tokens = {serving::WithLogprob('a', -0.5f)};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(DumpJson(on->Body()["choices"][0]["logprobs"]["content"]),
            "[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],"
            "\"top_logprobs\":[{\"token\":\"!\",\"logprob\":-0.25,"
            "\"bytes\":[33]}]}]");
}

TEST_F(GatewayAnswerTest, EchoGivesThePromptsOwnLogprobs) {
  const auto on = Complete(
      "\"prompt\":[104,105],\"echo\":true,\"logprobs\":1,\"max_tokens\":0");
  EXPECT_EQ(engine_.request(0).max_tokens, 0);
  EXPECT_EQ(engine_.request(0).sampling.prompt_logprobs, 1);
  TokenEvent event;
  event.prompt = {serving::WithLogprob('i', -1.5f)};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  const Json choice = on->Body()["choices"][0];
  EXPECT_EQ(choice["text"], "hi");
  EXPECT_EQ(DumpJson(choice["logprobs"]),
            "{\"text_offset\":[0,1],\"token_logprobs\":[null,-1.5],"
            "\"tokens\":[\"h\",\"i\"],"
            "\"top_logprobs\":[null,{\"!\":-0.75,\"i\":-1.5}]}");
}

TEST_F(GatewayAnswerTest, EchoKeepsTheNewTokensLogprobLast) {
  const auto on = Complete(
      "\"prompt\":[[104,105]],\"echo\":true,\"logprobs\":1,\"max_tokens\":1");
  TokenEvent event;
  event.prompt = {serving::WithLogprob('i', -1.5f)};
  event.tokens = {serving::WithLogprob('j', -2.0f)};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  const Json choice = on->Body()["choices"][0];
  EXPECT_EQ(choice["text"], "hij");
  EXPECT_EQ(DumpJson(choice["logprobs"]["token_logprobs"]), "[null,-1.5,-2.0]");
}

TEST_F(GatewayAnswerTest, PartsOfCharactersKeepTheirOwnLogprob) {
  const auto on = Complete("\"prompt\":\"x\",\"logprobs\":2");
  TokenEvent event;
  event.tokens = {
      {0x80, TokenLogprob{0x80, -3.0f, 1}, {TokenLogprob{0x81, -0.5f, 0}}}};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(DumpJson(on->Body()["choices"][0]["logprobs"]["top_logprobs"]),
            "[{\"bytes:\\\\x81\":-0.5,\"bytes:\\\\x80\":-3.0}]");
}

TEST_F(GatewayAnswerTest, TokensMayBeNamedByTheirIds) {
  const auto on = Complete(
      "\"prompt\":\"x\",\"logprobs\":1,\"return_tokens_as_token_ids\":true");
  TokenEvent event;
  event.tokens = {serving::WithLogprob('a', -0.5f)};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  const Json logprobs = on->Body()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"][0], "token_id:97");
  EXPECT_TRUE(logprobs["top_logprobs"][0].contains("token_id:33"));
}

TEST_F(GatewayAnswerTest, TokenIdsComeBackIfAskedFor) {
  const auto chat = Chat("\"return_token_ids\":true");
  engine_.Text(0, "a");
  FinalEvent end;
  end.stop_token = serving::kFakeEos;
  engine_.End(0, end);
  EXPECT_EQ(chat->Body()["prompt_token_ids"].size(), 6u);
  EXPECT_EQ(DumpJson(chat->Body()["choices"][0]["token_ids"]), "[97,257]");

  const auto completion =
      Complete("\"prompt\":[7,8],\"return_token_ids\":true");
  engine_.Text(1, "a");
  engine_.End(1, FinishReason::kLength);
  const Json choice = completion->Body()["choices"][0];
  EXPECT_EQ(DumpJson(choice["prompt_token_ids"]), "[7,8]");
  EXPECT_EQ(DumpJson(choice["token_ids"]), "[97]");

  const auto stream =
      Chat("\"return_token_ids\":true,\"stream\":true,\"max_tokens\":2");
  engine_.Text(2, "ab");
  const auto events = stream->Events();
  EXPECT_EQ(events[0]["prompt_token_ids"].size(), 6u);
  EXPECT_FALSE(events[1].contains("prompt_token_ids"));
  EXPECT_EQ(DumpJson(events[1]["choices"][0]["token_ids"]), "[98]");
}

TEST_F(GatewayAnswerTest, SeveralPromptsBecomeChoicesInOrder) {
  const auto on = Complete("\"prompt\":[\"a\",\"b\"]");
  ASSERT_EQ(engine_.submitted(), 2u);
  EXPECT_EQ(engine_.request(0).max_tokens, 16);
  engine_.Text(1, "B");
  engine_.End(1, FinishReason::kStop);
  engine_.Text(0, "A");
  EXPECT_TRUE(on->responses.empty());
  engine_.End(0, FinishReason::kLength);
  const Json body = on->Body();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "A");
  EXPECT_EQ(body["choices"][1]["text"], "B");
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4) << "two texts and two BOS";
}

TEST_F(GatewayAnswerTest, CompletionStreamsEndWithAReasonPerChoice) {
  const auto on = Complete("\"prompt\":[\"a\",\"b\"],\"stream\":true");
  engine_.Text(0, "A");
  engine_.End(0, FinishReason::kLength);
  EXPECT_FALSE(on->ended);
  engine_.End(1, FinishReason::kStop);
  const auto events = on->Events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["object"], "text_completion");
  EXPECT_EQ(events[0]["choices"][0]["text"], "A");
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[2]["choices"][0]["index"], 1);
  EXPECT_TRUE(on->ended);
}

TEST_F(GatewayAnswerTest, AnErrorBeforeTheFirstTokenIsAnHttpError) {
  const auto on = Chat("\"stream\":true");
  FinalEvent end;
  end.reason = FinishReason::kError;
  end.status = Unavailable("stage 1 was lost");
  engine_.End(0, end);
  EXPECT_EQ(on->responses[0].status, 503);
  EXPECT_THAT(on->responses[0].body, HasSubstr("stage 1 was lost"));
  EXPECT_TRUE(on->chunks.empty());
}

TEST_F(GatewayAnswerTest, AStopTokenOfTheClientsIsNamed) {
  const auto on =
      Complete("\"prompt\":\"a\",\"stop_token_ids\":[33],\"stream\":true");
  engine_.Text(0, "b");
  FinalEvent end;
  end.stop_token = 33;
  engine_.End(0, end);
  const auto events = on->Events();
  EXPECT_FALSE(events[0]["choices"][0].contains("stop_reason"));
  EXPECT_EQ(events[1]["choices"][0]["stop_reason"], 33);
}

TEST_F(GatewayAnswerTest, AnErrorAfterwardsIsTheLastEvent) {
  const auto on = Chat("\"stream\":true");
  engine_.Text(0, "a");
  FinalEvent end;
  end.reason = FinishReason::kError;
  end.status = Unavailable("stage 1 was lost");
  engine_.End(0, end);
  EXPECT_EQ(on->Events().back()["error"]["message"], "stage 1 was lost");
  EXPECT_TRUE(on->Events().back()["error"]["param"].is_null());
  EXPECT_EQ(on->chunks.back(), "data: [DONE]\n\n");
  EXPECT_TRUE(on->ended);
}

TEST_F(GatewayAnswerTest, AClientThatLeavesCancelsItsSequences) {
  const auto on = Complete("\"prompt\":[\"a\",\"b\"]");
  on->Leave(http::Gone::kDisconnected);
  EXPECT_TRUE(engine_.AwaitCancelled(2));
  EXPECT_TRUE(on->responses.empty());
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("finished_reason=\"abort\",model_name=\"fake\"} 2\n"));
}

TEST_F(GatewayAnswerTest, AFullQueueIsA429ThatSaysWhen) {
  engine_.set_refusal(ResourceExhausted("queue full"));
  const auto on = Chat("");
  EXPECT_EQ(on->responses[0].status, 429);
  EXPECT_EQ(on->responses[0].headers[0].first, "Retry-After");
  EXPECT_EQ(on->Body()["error"]["code"], "queue_full");
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("rejections_total{reason=\"queue_full\"} 1\n"));
}

TEST_F(GatewayAnswerTest, UnknownModelsAreNotFound) {
  const auto on = Chat("\"model\":\"other\"");
  EXPECT_EQ(on->responses[0].status, 404);
  EXPECT_EQ(on->Body()["error"]["code"], "model_not_found");
  EXPECT_EQ(on->Body()["error"]["param"], "model");
  EXPECT_EQ(engine_.submitted(), 0u);
}

TEST_F(GatewayAnswerTest, TooLongPromptsNameTokensAndLimit) {
  engine_.set_max_context(5);
  const auto on = Chat("");
  EXPECT_EQ(on->responses[0].status, 400);
  const Json error = on->Body()["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "messages");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("5 tokens"));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("has 6"));
}

TEST_F(GatewayAnswerTest, MaxTokensMustFitAndDefaultsToTheRoom) {
  engine_.set_max_context(20);
  const auto refused = Chat("\"max_tokens\":15");
  EXPECT_EQ(refused->Body()["error"]["param"], "max_tokens");
  Chat("");
  EXPECT_EQ(engine_.request(0).max_tokens, 14);
}

TEST_F(GatewayAnswerTest, SamplingReachesTheEngineResolved) {
  Chat("\"temperature\":0,\"seed\":5,\"top_k\":3,\"ignore_eos\":true");
  const GenerateRequest request = engine_.request(0);
  EXPECT_EQ(request.sampling.temperature, 0.0f);
  EXPECT_EQ(request.sampling.seed, 5u);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_TRUE(request.eos_token_ids.empty());
  Chat("");
  Chat("");
  EXPECT_NE(engine_.request(1).sampling.seed, engine_.request(2).sampling.seed);
}

TEST_F(GatewayAnswerTest, MinTokensExcludesTheEndTokensToo) {
  Chat("\"min_tokens\":2,\"stop_token_ids\":[9]");
  EXPECT_THAT(engine_.request(0).sampling.stop_token_ids,
              ElementsAre(9, serving::kFakeEos));
}

TEST_F(GatewayAnswerTest, MinTokensAboveWhatMayBeGeneratedAreRefused) {
  const struct {
    std::shared_ptr<http::FakeExchange> on;
    const char* message;
  } cases[] = {
      {Complete("\"prompt\":\"a\",\"min_tokens\":17"),
       "min_tokens: must not exceed max_tokens, which is 16 where it is left "
       "out, got 17"},
      {Chat("\"min_tokens\":5000"),
       "min_tokens: must not exceed max_tokens, which is 4090 where it is left "
       "out, got 5000"},
      {Chat("\"max_completion_tokens\":4,\"min_tokens\":5"),
       "min_tokens: must not exceed max_completion_tokens 4, got 5"}};
  for (const auto& [on, message] : cases) {
    const Json error = on->Body()["error"];
    EXPECT_EQ(error["param"], "min_tokens");
    EXPECT_EQ(error["message"], message);
  }
  EXPECT_EQ(engine_.submitted(), 0u);
  Complete("\"prompt\":\"a\",\"min_tokens\":16");
  EXPECT_EQ(engine_.submitted(), 1u);
}

TEST_F(GatewayAnswerTest, TheFieldThatTheClientNamedIsToBlame) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const Json error = Chat(Cat("\"", name, "\":5000"))->Body()["error"];
    EXPECT_EQ(error["param"], name);
    EXPECT_EQ(error["code"], "context_length_exceeded");
  }
}

TEST_F(GatewayAnswerTest, TokenizeAndDetokenizeAreInverse) {
  const auto on = Route("/tokenize", "{\"prompt\":\"hi\"}");
  EXPECT_EQ(DumpJson(on->Body()["tokens"]), "[256,104,105]");
  EXPECT_EQ(on->Body()["count"], 3);
  EXPECT_EQ(on->Body()["max_model_len"], 4096);
  const auto bare =
      Route("/tokenize", "{\"prompt\":\"hi\",\"add_special_tokens\":false}");
  EXPECT_EQ(bare->Body()["count"], 2);
  const auto chat = Route(
      "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
  EXPECT_EQ(chat->Body()["count"], 6);
  EXPECT_EQ(Route("/detokenize", "{\"tokens\":[104,105]}")->Body()["prompt"],
            "hi");
}

TEST_F(GatewayAnswerTest, TokenizeTakesLlamaCppsNames) {
  const auto tokens = [this](std::string_view fields) {
    return DumpJson(
        Route("/tokenize", Cat("{\"content\":\"h\xc3\xa1\"", fields, "}"))
            ->Body()["tokens"]);
  };
  EXPECT_EQ(tokens(""), "[104,195,161]");
  EXPECT_EQ(tokens(",\"add_special\":true"), "[256,104,195,161]");
  EXPECT_EQ(tokens(",\"parse_special\":false"), "[104,195,161]");
  EXPECT_EQ(tokens(",\"with_pieces\":true"),
            R"([{"id":104,"piece":"h"},{"id":195,"piece":[195]},)"
            R"({"id":161,"piece":[161]}])");
  EXPECT_EQ(Route("/detokenize", "{\"tokens\":[104,105]}")->Body()["content"],
            "hi");
  EXPECT_EQ(Route("/tokenize", R"({"content":"a","prompt":"b"})")
                ->Body()["error"]["param"],
            "content");
}

TEST_F(GatewayAnswerTest, ApplyTemplateGivesAChatsPromptWithoutBos) {
  const auto on = Route("/apply-template",
                        R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(on->Body(), Json({{"prompt", "<turn>uhi<turn>"}}));
  EXPECT_EQ(Route("/apply-template", R"({"prompt":"hi"})")->responses[0].status,
            400);
}

TEST_F(GatewayAnswerTest, TimingsAreTheChoices) {
  for (const bool chat : {true, false}) {
    const size_t sequence = engine_.submitted();
    const auto on =
        chat ? Route("/chat/completions",
                     R"({"timings_per_token":true,"messages":
                                 [{"role":"user","content":"hi"}]})")
             : Complete("\"prompt\":\"x\",\"timings_per_token\":true");
    engine_.Start(sequence);
    engine_.Text(sequence, "abc");
    engine_.End(sequence, FinishReason::kLength);
    const Json timings = on->Body()["timings"];
    EXPECT_EQ(timings["predicted_n"], 3);
    EXPECT_EQ(timings["cache_n"], 0);
    EXPECT_GE(timings["prompt_ms"], 0.0);
  }
  const auto plain =
      Complete("\"prompt\":\"x\",\"n\":2,\"timings_per_token\":true");
  for (const size_t sequence : {2u, 3u}) {
    engine_.Text(sequence, "abc");
    engine_.End(sequence, FinishReason::kLength);
  }
  EXPECT_FALSE(plain->Body().contains("timings"));
  EXPECT_EQ(plain->Body()["choices"][1]["timings"]["predicted_n"], 3);
}

TEST_F(GatewayAnswerTest, TimingsCountNoTokenBehindTheStop) {
  const auto on =
      Complete("\"prompt\":\"x\",\"stop\":\"END\",\"timings_per_token\":true");
  engine_.Start(0);
  engine_.Text(0, "aEND and more");
  engine_.Text(0, "late");
  engine_.End(0, FinishReason::kCancelled);
  const Json body = on->Body();
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
  EXPECT_EQ(body["timings"]["predicted_n"], 4);
}

TEST_F(GatewayAnswerTest, FieldsOfTokensAreAConstraint) {
  Complete(
      "\"prompt\":\"x\",\"n\":2,\"allowed_token_ids\":[98,97],\"bad_words\":["
      "\"b\"]");
  const auto one = engine_.request(0).constraint;
  ASSERT_NE(one, nullptr);
  EXPECT_NE(one, engine_.request(1).constraint);
  one->Advance({}, [] {});
  const TokenMask only{{{97, 98}}, false};
  EXPECT_EQ(one->Latest()->mask, only);
  Complete("\"prompt\":\"x\",\"priority\":-3");
  EXPECT_EQ(engine_.request(2).priority, -3);
  EXPECT_EQ(engine_.request(2).constraint, nullptr);
  // A model that does not reason has every budget.
  Chat("\"thinking_budget\":5");
  EXPECT_EQ(engine_.request(3).constraint, nullptr);
}

TEST_F(GatewayAnswerTest, ModelsHaveTheMembersOfOtherServers) {
  const Json body = Get("/models")->Body();
  EXPECT_EQ(body, Get("/v1/models")->Body());
  const Json& model = body["data"][0];
  EXPECT_EQ(model["context_length"], 4096);
  EXPECT_EQ(model["architecture"]["input_modalities"], Json::array({"text"}));
  EXPECT_EQ(model["meta"]["n_ctx_train"], 4096);
  EXPECT_EQ(model["meta"]["n_vocab"], 259);
  EXPECT_EQ(body["models"][0]["name"], "fake");
}

TEST_F(GatewayAnswerTest, ModelsAreListedWithoutTheirPath) {
  const Json model = Get("/v1/models")->Body()["data"][0];
  EXPECT_EQ(model["id"], "fake");
  EXPECT_FALSE(model.contains("root")) << "for key holders alone";
  EXPECT_EQ(model["max_model_len"], 4096);
  EXPECT_EQ(Get("/v1/models/fake")->Body()["id"], "fake");
  EXPECT_EQ(Get("/v1/models/other")->responses[0].status, 404);
  EXPECT_EQ(Get("/version")->Body()["version"], BuildVersion());
}

TEST_F(GatewayAnswerTest, ReadinessNamesTheStagesThatAreNot) {
  EXPECT_EQ(Get("/livez")->responses[0].status, 200);
  EXPECT_EQ(Get("/readyz")->responses[0].status, 200);
  readiness_ = {false,
                "pipeline down",
                {{"stage 0", true, ""}, {"stage 1", false, "silent"}},
                2};
  const auto on = Get("/readyz");
  EXPECT_EQ(on->responses[0].status, 503);
  EXPECT_EQ(DumpJson(on->Body()["not_ready"]),
            "[{\"name\":\"stage 1\",\"why\":\"silent\"}]");
  EXPECT_EQ(Get("/health")->responses[0].status, 503);
  EXPECT_EQ(Get("/livez")->responses[0].status, 200);
}

TEST_F(GatewayAnswerTest, OtherPathsAndMethodsGetErrorObjects) {
  const auto missing = Get("/v1/nothing");
  EXPECT_EQ(missing->responses[0].status, 404);
  EXPECT_EQ(missing->Body()["error"]["type"], "invalid_request_error");
  const auto wrong = Get("/v1/chat/completions");
  EXPECT_EQ(wrong->responses[0].status, 405);
  EXPECT_EQ(wrong->responses[0].headers[0],
            (std::pair<std::string, std::string>("Allow", "POST, OPTIONS")));
  EXPECT_EQ(Get("/v1/models", "OPTIONS")->responses[0].status, 204);
  EXPECT_EQ(Get("/v1/models", "HEAD")->responses[0].status, 200);
  EXPECT_EQ(Get("/v1/models", "DELETE")->responses[0].status, 405);
}

TEST_F(GatewayAnswerTest, MetricsSpeakVllmsNames) {
  const auto on = Chat("");
  engine_.Text(0, "abc");
  engine_.End(0, FinishReason::kLength);
  EngineStats stats;
  stats.blocks_total = 8;
  metrics_.Attach({[&] { return stats; }, [] { return true; }, {}, {}});
  const std::string text = Get("/metrics")->responses[0].body;
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
        "vllm:engine_healthy", "vllm:cache_config_info",
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
        "vllm:num_preemptions_total", "vllm:request_queue_time_seconds_count",
        "vllm:request_prefill_time_seconds_count",
        "vllm:request_decode_time_seconds_count", "sluice_gateway_ready",
        "sluice_build_info"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
  const std::string labels = "{engine=\"0\",model_name=\"fake\"} ";
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_count" +
                              labels + "1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:inter_token_latency_seconds_count" +
                              labels + "2\n"));
  EXPECT_THAT(text, HasSubstr("vllm:e2e_request_latency_seconds_count" +
                              labels + "1\n"));
}

TEST_F(GatewayAnswerTest, TheCachesConfigIsTheLatestOfAPipelineThatWasUp) {
  EngineStats stats;
  metrics_.Attach({[&] { return stats; }, [] { return true; }, {}, {}});
  const auto scrape = [&](int blocks) {
    stats.blocks_total = blocks;
    return Get("/metrics")->responses[0].body;
  };
  const std::string info = "vllm:cache_config_info{";
  EXPECT_THAT(scrape(0), Not(HasSubstr(info)));
  EXPECT_THAT(scrape(8), HasSubstr("num_gpu_blocks=\"8\"} 1\n"));
  EXPECT_THAT(scrape(0), HasSubstr("num_gpu_blocks=\"8\"} 1\n"));
  const std::string text = scrape(9);
  EXPECT_THAT(text, HasSubstr("num_gpu_blocks=\"9\"} 1\n"));
  EXPECT_EQ(text.find(info), text.rfind(info));
}

TEST_F(GatewayAnswerTest, APromptIsCountedOnceWithAllItsChoices) {
  Route("/v1/completions", "{\"prompt\":[[1],[2]],\"n\":3}");
  for (size_t i = 0; i < 6; ++i) {
    FinalEvent end{.reason = FinishReason::kLength};
    end.stats.prompt_tokens = 40;
    end.stats.cached_tokens = 16;
    end.stats.completion_tokens = i == 1 ? 700 : 2;
    if (i == 5) end.reason = FinishReason::kError;
    engine_.End(i, end);
  }
  const std::string text = metrics_.Text();
  const std::string labels = "{engine=\"0\",model_name=\"fake\"";
  const auto has = [&](const char* line) {
    std::string wanted = line;
    wanted.replace(wanted.find('{'), 1, labels);
    EXPECT_THAT(text, HasSubstr(wanted));
  };
  has("vllm:request_params_n_sum{} 3\n");
  has("vllm:request_params_n_count{} 1\n");  // the other had an error
  has("vllm:request_params_n_bucket{,le=\"2\"} 0\n");
  has("vllm:request_params_n_bucket{,le=\"5\"} 1\n");
  has("vllm:request_max_num_generation_tokens_sum{} 700\n");
  has("vllm:request_prefill_kv_computed_tokens_sum{} 120\n");
}

TEST_F(GatewayAnswerTest, WhoIsRefusedIsToldWhenToTryAgainAndWhy) {
  engine_.set_refusal(Unavailable("no pipeline is up"));
  const auto refuse = [this] {
    const http::HttpResponse answer = Chat("")->responses[0];
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.headers[0].first, "Retry-After");
    return answer.headers[0].second;
  };
  readiness_.retry_after_seconds = 17;
  EXPECT_EQ(refuse(), "17");
  readiness_.draining = true;
  readiness_.retry_after_seconds = 42;
  EXPECT_EQ(refuse(), "42");
  EXPECT_EQ(refuse(), "42");
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("rejections_total{reason=\"unavailable\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("rejections_total{reason=\"draining\"} 2\n"));
  readiness_.ready = false;
  const http::HttpResponse probe = Get("/readyz")->responses[0];
  EXPECT_EQ(probe.headers[0],
            (std::pair<std::string, std::string>("Retry-After", "42")));
}

TEST_F(GatewayAnswerTest, VllmsNamesCanBeTurnedOff) {
  GatewayMetricsOptions options;
  options.model_name = "fake";
  options.vllm_names = false;
  const GatewayMetrics metrics(options);
  EXPECT_THAT(metrics.Text(), ::testing::Not(HasSubstr("vllm:")));
}

}  // namespace
}  // namespace sluice::gateway
