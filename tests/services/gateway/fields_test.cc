// What each field of a request does: one test per field, on the way from the
// body's bytes to the engine's request, or from tokens to the answer's bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "common/concurrency/turn_queue.h"
#include "tests/services/gateway/fields_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(GatewayFieldsTest, NGivesSequencesThatDifferInTheirChoice) {
  const auto on = Chat("\"n\":3,\"seed\":7");
  ASSERT_EQ(engine_.submitted(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    const GenerateRequest request = engine_.request(i);
    EXPECT_EQ(request.sampling.choice, i);
    EXPECT_EQ(request.sampling.seed, 7u);
    EXPECT_EQ(request.num_choices, 3);
    EXPECT_EQ(request.request_id, engine_.request(0).request_id);
    EXPECT_EQ(request.prompt_tokens, engine_.request(0).prompt_tokens);
  }
  // They end in any order, and the answer has them in theirs.
  FinalEvent end;
  for (const size_t i : {2, 0, 1}) {
    engine_.Text(i, std::string(i + 1, static_cast<char>('a' + i)));
    end.stats.cached_tokens = static_cast<int32_t>(2 + i);
    engine_.End(i, end);
  }
  const Json body = on->Body();
  ASSERT_EQ(body["choices"].size(), 3u);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "a");
  EXPECT_EQ(body["choices"][2]["message"]["content"], "ccc");
  EXPECT_EQ(body["choices"][2]["index"], 2);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 6) << "once";
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST_F(GatewayFieldsTest, EveryStreamedChoiceBeginsWithItsRole) {
  const auto on = Chat("\"n\":2,\"stream\":true");
  engine_.Text(1, "x");
  engine_.Text(0, "y");
  engine_.End(1, FinishReason::kLength);
  engine_.End(0, FinishReason::kStop);
  std::vector<std::string> roles(2);
  for (const Json& event : on->Events()) {
    const Json& choice = event["choices"][0];
    if (choice["delta"].contains("role")) {
      roles[choice["index"].get<size_t>()] += choice["delta"]["role"];
    }
  }
  EXPECT_THAT(roles, ElementsAre("assistant", "assistant"));
}

TEST_F(GatewayFieldsTest, NCountsChoicesPerPrompt) {
  const auto on =
      Route("/v1/completions",
            "{\"prompt\":[\"a\",\"bc\"],\"n\":2,\"return_token_ids\":true}");
  ASSERT_EQ(engine_.submitted(), 4u);
  for (size_t i = 0; i < 4; ++i) engine_.End(i, FinishReason::kLength);
  const Json body = on->Body();
  ASSERT_EQ(body["choices"].size(), 4u);
  EXPECT_EQ(DumpJson(body["choices"][1]["prompt_token_ids"]), "[256,97]");
  EXPECT_EQ(DumpJson(body["choices"][2]["prompt_token_ids"]), "[256,98,99]");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_THAT(
      ErrorOf(Route("/v1/completions", "{\"prompt\":[\"a\",\"b\"],\"n\":65}")),
      HasSubstr("limit 128"));
}

TEST_F(GatewayFieldsTest, BestOfShowsTheLikeliestChoices) {
  const auto on = Complete("\"best_of\":3,\"n\":2");
  ASSERT_EQ(engine_.submitted(), 3u);
  constexpr float kLogprobs[] = {-3.0f, -1.0f, -2.0f};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(engine_.request(i).sampling.logprobs, 0);
    EXPECT_EQ(engine_.request(i).sampling.choice, i);
    TokenEvent event;
    event.tokens.push_back(
        serving::WithLogprob(static_cast<TokenId>('a' + i), kLogprobs[i]));
    engine_.Tokens(i, std::move(event));
    engine_.End(i, FinishReason::kLength);
  }
  const Json answer = on->Body();
  ASSERT_EQ(answer["choices"].size(), 2u);
  EXPECT_EQ(answer["choices"][0]["text"], "b");
  EXPECT_EQ(answer["choices"][1]["text"], "c");
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
}

TEST_F(GatewayFieldsTest, BestOfIsRefusedByName) {
  for (const char* fields :
       {"\"best_of\":2,\"n\":3", "\"best_of\":3,\"stream\":true",
        "\"best_of\":129", "\"best_of\":3,\"timings_per_token\":true"}) {
    EXPECT_THAT(ErrorOf(Complete(fields)), HasSubstr("best_of")) << fields;
  }
  EXPECT_THAT(ErrorOf(Chat("\"best_of\":3")), HasSubstr("best_of"));
  Complete("\"best_of\":2,\"n\":2");
  Complete("\"best_of\":1,\"n\":2");
  EXPECT_EQ(engine_.submitted(), 4u);
}

TEST_F(GatewayFieldsTest, PenaltiesAndBiasReachTheSampler) {
  Chat(
      "\"frequency_penalty\":0.5,\"presence_penalty\":-1.5,"
      "\"repetition_penalty\":1.25,\"logit_bias\":{\"100\":-100,\"7\":2.5}");
  const SamplingParams& sampling = Sampling(0);
  EXPECT_EQ(sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(sampling.presence_penalty, -1.5f);
  EXPECT_EQ(sampling.repetition_penalty, 1.25f);
  EXPECT_THAT(sampling.logit_bias,
              ElementsAre(LogitBias{7, 2.5f}, LogitBias{100, -100.0f}));
  Chat("");
  EXPECT_EQ(Sampling(1).repetition_penalty, 1.0f);
}

TEST_F(GatewayFieldsTest, TheModelsRepetitionPenaltyIsTheDefault) {
  model_.defaults.repetition_penalty = 1.1f;
  Chat("");
  EXPECT_EQ(Sampling(0).repetition_penalty, 1.1f);
}

TEST_F(GatewayFieldsTest, BadBiasesAreRefusedByPlace) {
  EXPECT_THAT(ErrorOf(Chat("\"logit_bias\":{\"259\":1}")),
              HasSubstr("from 0 to 258"));
  EXPECT_THAT(ErrorOf(Chat("\"logit_bias\":{\"x\":1}")), HasSubstr("is none"));
  EXPECT_THAT(ErrorOf(Chat("\"logit_bias\":{\"-1\":1}")), HasSubstr("is none"));
  EXPECT_THAT(ErrorOf(Chat("\"logit_bias\":{\"07\":1}")), HasSubstr("is none"));
  EXPECT_THAT(ErrorOf(Chat("\"logit_bias\":{\"\":1}")), HasSubstr("is none"));
  EXPECT_THAT(ErrorOf(Chat("\"logit_bias\":{\"5\":101}")), HasSubstr("100"));
  EXPECT_THAT(ErrorOf(Chat("\"logit_bias\":{\"5\":\"1\"}")),
              HasSubstr("a string"));
  EXPECT_THAT(ErrorOf(Chat("\"logit_bias\":[5]")), HasSubstr("an object"));
}

TEST_F(GatewayFieldsTest, AStopStringIsShownIfItIsToBe) {
  const std::string stop = "\"stop\":\"END\",";
  const auto tokens = serving::Bytes("okENDmore");
  EXPECT_EQ(TextOf(stop + "\"include_stop_str_in_output\":false", tokens),
            "ok");
  EXPECT_EQ(TextOf(stop + "\"include_stop_str_in_output\":true", tokens),
            "okEND");
}

TEST_F(GatewayFieldsTest, AStopTokenIsShownIfItIsToBe) {
  EXPECT_EQ(TextOf("\"stop_token_ids\":[33]", serving::Bytes("ok"), '!'), "ok");
  EXPECT_EQ(TextOf("\"stop_token_ids\":[33],"
                   "\"include_stop_str_in_output\":true",
                   serving::Bytes("ok"), '!'),
            "ok!");
}

TEST_F(GatewayFieldsTest, SpecialTokensAreShownIfTheyAreToBe) {
  const std::vector<TokenId> tokens = {'a', serving::kFakeTurn, 'b'};
  EXPECT_EQ(TextOf("\"skip_special_tokens\":true", tokens), "ab");
  EXPECT_EQ(TextOf("\"skip_special_tokens\":false", tokens), "a<turn>b");
  EXPECT_EQ(TextOf("\"skip_special_tokens\":false,"
                   "\"spaces_between_special_tokens\":false",
                   tokens),
            "a<turn>b");
}

TEST_F(GatewayFieldsTest, AddSpecialTokensPutsBosInFront) {
  Complete("\"add_special_tokens\":false");
  EXPECT_EQ(engine_.request(0).prompt_tokens, serving::Bytes("hello"));
  Chat("\"add_special_tokens\":true");
  EXPECT_EQ(engine_.request(1).prompt_tokens[1], serving::kFakeBos);
}

TEST_F(GatewayFieldsTest, TruncationKeepsTheEndOfThePrompt) {
  const auto on =
      Complete("\"truncate_prompt_tokens\":3,\"echo\":true,\"max_tokens\":1");
  EXPECT_EQ(engine_.request(0).prompt_tokens, serving::Bytes("llo"));
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->Body()["choices"][0]["text"], "llo");
  EXPECT_EQ(on->Body()["usage"]["prompt_tokens"], 3);
  engine_.set_max_context(6);
  Complete("\"truncate_prompt_tokens\":-1,\"max_tokens\":4");
  EXPECT_EQ(engine_.request(1).prompt_tokens, serving::Bytes("lo"));
  Complete("\"truncate_prompt_tokens\":-1,\"min_tokens\":4");
  EXPECT_EQ(engine_.request(2).prompt_tokens, serving::Bytes("lo"));
  Chat("\"truncate_prompt_tokens\":2,\"max_tokens\":1");
  EXPECT_THAT(engine_.request(3).prompt_tokens,
              ElementsAre('i', serving::kFakeTurn));
  EXPECT_THAT(ErrorOf(Complete("\"truncate_prompt_tokens\":7")),
              HasSubstr("limited to 6"));
  EXPECT_THAT(ErrorOf(Complete("\"truncate_prompt_tokens\":0")),
              HasSubstr("-1 or at least 1"));
}

TEST_F(GatewayFieldsTest, FollowersOfAPromptThatFailsEndToo) {
  const auto on = Complete("\"prompt_logprobs\":1,\"n\":2");
  engine_.Text(1, "b");
  FinalEvent lost;
  lost.reason = FinishReason::kError;
  lost.status = Unavailable("a stage was lost");
  engine_.End(0, lost);
  ASSERT_EQ(on->responses.size(), 1u);
  EXPECT_EQ(on->responses[0].status, 503);
  EXPECT_TRUE(engine_.AwaitCancelled(1));
}

TEST_F(GatewayFieldsTest, AFinalMessageIsContinued) {
  Chat("\"continue_final_message\":true");
  EXPECT_EQ(engine_.request(0).prompt_tokens.back(), 'i');
  Chat("\"add_generation_prompt\":false");
  EXPECT_EQ(engine_.request(1).prompt_tokens.back(), 'i');
  EXPECT_THAT(ErrorOf(Chat("\"continue_final_message\":true,"
                           "\"add_generation_prompt\":true")),
              HasSubstr("continue_final_message"));
}

TEST_F(GatewayFieldsTest, EchoShowsTheMessageThatIsContinued) {
  const std::string body =
      R"({"messages":[{"role":"user","content":"a"},
          {"role":"assistant","content":"It is"}],"echo":true,
          "continue_final_message":true})";
  const auto on = Route("/v1/chat/completions", body);
  engine_.Text(0, " so");
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->Body()["choices"][0]["message"]["content"], "It is so");
}

TEST_F(GatewayFieldsTest, DevelopersAreSystemsAndTextPartsAreJoined) {
  Route("/v1/chat/completions",
        R"({"messages":[{"role":"developer","content":[
          {"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  EXPECT_THAT(engine_.request(0).prompt_tokens,
              ElementsAre(serving::kFakeBos, serving::kFakeTurn, 's', 'a', '\n',
                          'b', serving::kFakeTurn));
  EXPECT_THAT(
      ErrorOf(Route("/v1/chat/completions",
                    R"({"messages":[{"role":"user","content":[
                      {"type":"image_url","image_url":{"url":"x"}}]}]})")),
      HasSubstr("messages[0].content[0].type \"image_url\" is not supported"));
}

TEST_F(GatewayFieldsTest, ResponseFormatsNeedAVocabulary) {
  EXPECT_THAT(ErrorOf(Chat("\"response_format\":{\"type\":\"json_object\"}")),
              HasSubstr("response_format: model fake has no vocabulary"));
  Chat("\"response_format\":{\"type\":\"text\"}");
  EXPECT_EQ(engine_.submitted(), 1u);
}

TEST_F(GatewayFieldsTest, ACacheSaltSeparatesPrefixes) {
  Chat("\"cache_salt\":\"mine\"");
  EXPECT_EQ(engine_.request(0).cache_salt, "mine");
  EXPECT_THAT(
      ErrorOf(Chat(Cat("\"cache_salt\":\"", std::string(257, 'x'), "\""))),
      HasSubstr("limit 256"));
}

TEST_F(GatewayFieldsTest, TheIdIsTheClients) {
  const auto id_of = [&](const std::string& fields, http::HttpHeaders headers) {
    const size_t sequence = engine_.submitted();
    auto exchange =
        http::Post("/v1/chat/completions",
                   Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
                       fields, "}"));
    exchange->request().headers = std::move(headers);
    exchange->request().request_id = "from-http";
    router_.Route(exchange);
    engine_.End(sequence, FinishReason::kLength);
    return exchange->Body()["id"].get<std::string>();
  };
  EXPECT_EQ(id_of("", {}), "chatcmpl-from-http");
  EXPECT_EQ(id_of(",\"request_id\":\"from-body\"", {}), "chatcmpl-from-body");
  EXPECT_EQ(
      id_of(",\"request_id\":\"from-body\"", {{"x-request-id", "from-http"}}),
      "chatcmpl-from-http");
  EXPECT_NE(engine_.request(0).request_id, engine_.request(2).request_id)
      << "one request's choices are told from another's";
  EXPECT_THAT(ErrorOf(Chat("\"request_id\":\"a b\"")), HasSubstr("request_id"));
}

TEST_F(GatewayFieldsTest, ATimeoutBecomesADeadline) {
  const auto on = Chat("", {{"x-request-timeout", "2.5"}});
  const GenerateRequest request = engine_.request(0);
  ASSERT_TRUE(request.deadline.has_value());
  EXPECT_EQ(*request.deadline - on->request().arrival,
            std::chrono::milliseconds(2500));
  Chat("");
  EXPECT_FALSE(engine_.request(1).deadline.has_value());
  for (const char* bad : {"0", "-1", "1e9", "soon", "nan", "90000", "1s"}) {
    EXPECT_THAT(ErrorOf(Chat("", {{"x-request-timeout", bad}})),
                HasSubstr("X-Request-Timeout"))
        << bad;
  }
  FinalEvent end;
  end.reason = FinishReason::kError;
  end.status = MakeStatus(StatusCode::kDeadlineExceeded, "too late");
  engine_.End(0, end);
  EXPECT_EQ(on->responses[0].status, 504);
}

TEST_F(GatewayFieldsTest, ATenantsRequestsCarryItsName) {
  auto exchange = http::Post("/v1/completions", "{\"prompt\":\"a\"}");
  exchange->request().tenant = "alice";
  router_.Route(exchange);
  EXPECT_EQ(engine_.request(0).tenant, "alice");
}

TEST_F(GatewayFieldsTest, HarmlessFieldsChangeNothing) {
  Chat(R"("user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto",
    "prediction":{"type":"content"},
    "safety_identifier":"s","prompt_cache_key":"k","verbosity":"low",
    "prompt_cache_retention":"24h","no_such_field":1,"temperature":0.5,
    "seed":1)");
  Chat("\"temperature\":0.5,\"seed\":1");
  EXPECT_EQ(Sampling(0), Sampling(1));
  EXPECT_EQ(engine_.request(0).prompt_tokens, engine_.request(1).prompt_tokens);
}

TEST_F(GatewayFieldsTest, UnknownFieldsAreRefusedIfTheServerIsStrict) {
  context_.strict_fields = true;
  http::Router strict;
  AddRoutes(strict);
  const auto on =
      http::Post("/v1/completions", R"({"prompt":"a","temprature":1})");
  strict.Route(on);
  EXPECT_EQ(on->responses[0].status, 400);
  EXPECT_EQ(on->Body()["error"]["param"], "temprature");
  EXPECT_EQ(on->Body()["error"]["code"], "unknown_parameter");
}

TEST_F(GatewayFieldsTest, TextThatCannotFitIsRefusedBeforeItIsEncoded) {
  engine_.set_max_context(100);
  const std::string text(401, 'x');  // of at most 4 bytes a token
  const auto prompt =
      Route("/v1/completions", Cat("{\"prompt\":\"", text, "\"}"));
  EXPECT_THAT(ErrorOf(prompt), HasSubstr("the prompt has 401 bytes"));
  EXPECT_EQ(prompt->Body()["error"]["code"], "context_length_exceeded");
  const auto chat = Route(
      "/v1/chat/completions",
      Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"", text, "\"}]}"));
  EXPECT_THAT(ErrorOf(chat), HasSubstr("bytes"));
  EXPECT_EQ(chat->Body()["error"]["code"], "context_length_exceeded");
  Route("/v1/completions",
        Cat("{\"prompt\":\"", text, "\",\"truncate_prompt_tokens\":5}"));
  EXPECT_EQ(engine_.submitted(), 1u);
}

TEST_F(GatewayFieldsTest, SlowTextIsKeptOffTheLoop) {
  auto text = std::make_unique<serving::FakeText>();
  text->quick = false;
  model_.text = std::move(text);
  TurnQueue work({.threads = 1, .max_queued = 1});
  work.Stop();  // it takes nothing: what is sent there is refused
  context_.work = &work;
  http::Router router;
  AddRoutes(router);
  const auto on = http::Post("/v1/completions", "{\"prompt\":\"a\"}");
  router.Route(on);
  EXPECT_EQ(engine_.submitted(), 0u);
  EXPECT_EQ(on->responses.size(), 1u);
}

TEST_F(GatewayFieldsTest, TokenizeTakesTemplateFieldsAndNamesTokens) {
  const std::string messages =
      "{\"messages\":[{\"role\":\"user\",\"content\":\"h\"}]";
  EXPECT_EQ(Route("/tokenize", messages + ",\"continue_final_message\":true}")
                ->Body()["count"],
            4);
  const Json named =
      Route("/tokenize", messages + ",\"return_token_strs\":true}")->Body();
  EXPECT_EQ(DumpJson(named["token_strs"]),
            "[\"<s>\",\"<turn>\",\"u\",\"h\",\"<turn>\"]");
}

TEST_F(GatewayFieldsTest, TokenizerInfoTellsWhatHarnessesAskFor) {
  auto on = http::Post("/tokenizer_info", "");
  on->request().method = "GET";
  router_.Route(on);
  const Json info = on->Body();
  EXPECT_EQ(info["eos_token"], "</s>");
  EXPECT_EQ(info["bos_token"], "<s>");
  EXPECT_TRUE(info["pad_token"].is_null());
  EXPECT_EQ(info["chat_template"], "{{ messages }}");
}

TEST_F(GatewayFieldsTest, OtherEndpointsOfOpenAiAreRefusedByName) {
  for (const char* path : {"/v1/moderations", "/v1/audio/speech",
                           "/v1/images/generations", "/rerank"}) {
    const auto on = Route(path, "{}");
    EXPECT_EQ(on->responses[0].status, 404);
    const Json error = on->Body()["error"];
    EXPECT_EQ(error["code"], "unsupported_endpoint");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(path));
  }
}

TEST_F(GatewayFieldsTest, TheFingerprintIsTheModels) {
  model_.digest = "0123456789abcdef";
  const auto on = Complete("\"max_tokens\":1");
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->Body()["system_fingerprint"], "fp_0123456789ab");
}

}  // namespace
}  // namespace sluice::gateway
