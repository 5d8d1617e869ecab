// Log probabilities and usage, from tokens to the answer's bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/services/gateway/fields_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(GatewayFieldsTest, PromptLogprobsHaveVllmsShape) {
  const auto chat = Chat("\"prompt_logprobs\":1,\"n\":2");
  EXPECT_EQ(Sampling(0).prompt_logprobs, 1);
  EXPECT_EQ(Sampling(1).prompt_logprobs, -1) << "told once";
  TokenEvent event;
  event.prompt = {serving::WithLogprob('u', -2.0f)};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  engine_.End(1, FinishReason::kLength);
  EXPECT_EQ(DumpJson(chat->Body()["prompt_logprobs"]),
            "[null,{\"117\":{\"logprob\":-2.0,\"rank\":2,\"decoded_token\":"
            "\"u\"},\"33\":{\"logprob\":-1.0,\"rank\":1,\"decoded_token\":"
            "\"!\"}}]");
  const auto completion = Complete("\"prompt_logprobs\":1");
  engine_.Tokens(2, event);
  engine_.End(2, FinishReason::kLength);
  EXPECT_EQ(completion->Body()["choices"][0]["prompt_logprobs"],
            chat->Body()["prompt_logprobs"]);
  EXPECT_THAT(ErrorOf(Chat("\"prompt_logprobs\":1,\"stream\":true")),
              HasSubstr("prompt_logprobs"));
}

// A token of the text "a" that has the logprobs of "b", "a" and "!".
TokenEvent NamedTokens() {
  TokenEvent event;
  event.tokens = {{'a',
                   TokenLogprob{'a', -2.0f, 1},
                   {{'b', -4.0f, 7}, {'a', -2.0f, 1}, {'!', -0.5f, 0}}}};
  return event;
}

TEST_F(GatewayFieldsTest, NamedTokensComeInTheirOrder) {
  constexpr char kAsked[] =
      "\"return_tokens_as_token_ids\":true,"
      "\"logprob_token_ids\":[98,97,33,98],\"logprobs\":";
  const auto chat = Chat(Cat(kAsked, "true"));
  const auto stream = Chat(Cat(kAsked, "true,\"stream\":true"));
  const auto completion = Complete(Cat(kAsked, "1"));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(Sampling(i).logprob_token_ids, ElementsAre('b', 'a', '!'));
    engine_.Tokens(i, NamedTokens());
    engine_.End(i, FinishReason::kLength);
  }
  const auto tops = [](const Json& choice) {
    std::string all;
    for (const Json& top : choice["logprobs"]["content"][0]["top_logprobs"]) {
      all += Cat(top["token"].get<std::string>(), " ");
    }
    return all;
  };
  constexpr char kTold[] = "token_id:98 token_id:97 token_id:33 ";
  EXPECT_EQ(tops(chat->Body()["choices"][0]), kTold);
  size_t told = 0;
  for (const Json& event : stream->Events()) {
    const Json& choice = event["choices"][0];
    if (choice["logprobs"].is_null()) continue;
    EXPECT_EQ(tops(choice), kTold);
    ++told;
  }
  EXPECT_EQ(told, 1u);
  EXPECT_EQ(
      DumpJson(completion->Body()["choices"][0]["logprobs"]["top_logprobs"]),
      "[{\"token_id:98\":-4.0,\"token_id:97\":-2.0,"
      "\"token_id:33\":-0.5}]");
}

TEST_F(GatewayFieldsTest, AnAnswerIsAsLargeAsItsNamedTokens) {
  context_.limits.answer_bytes = 1 << 16;
  http::Router router;
  AddRoutes(router);
  const auto ask = [&](const std::string& ids) {
    auto on = http::Post("/v1/completions",
                         Cat("{\"prompt\":\"x\",\"max_tokens\":100,",
                             "\"logprobs\":0", ids, "}"));
    router.Route(on);
    return on;
  };
  std::string ids = ",\"logprob_token_ids\":[0";
  for (int i = 1; i < 100; ++i) ids += Cat(",", i);
  EXPECT_TRUE(ask("")->responses.empty());
  EXPECT_THAT(ErrorOf(ask(ids + "]")), HasSubstr("100 logprob_token_ids"));
}

TEST_F(GatewayFieldsTest, APromptsLogprobsAreComputedOnceForAllChoices) {
  const auto on = Complete("\"prompt_logprobs\":1,\"n\":3");
  EXPECT_EQ(Sampling(0).prompt_logprobs, 1);
  EXPECT_EQ(Sampling(1).prompt_logprobs, -1);
  EXPECT_EQ(Sampling(2).prompt_logprobs, -1);
  // The others may be ahead, and done, before the first has its prompt.
  engine_.Text(2, "c");
  engine_.Text(1, "b");
  engine_.End(1, FinishReason::kLength);
  TokenEvent event;
  event.prompt = {serving::WithLogprob('u', -2.0f)};
  engine_.Tokens(0, event);
  event.prompt = {serving::WithLogprob('v', -3.0f)};
  engine_.Tokens(0, event);
  engine_.Text(0, "a");
  engine_.End(0, FinishReason::kLength);
  EXPECT_TRUE(on->responses.empty());
  engine_.End(2, FinishReason::kLength);
  const Json choices = on->Body()["choices"];
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_EQ(choices[0]["prompt_logprobs"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(choices[i]["text"], std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(choices[i]["prompt_logprobs"], choices[0]["prompt_logprobs"]);
  }
}

TEST_F(GatewayFieldsTest, EchoedLogprobsAreStreamedToEveryChoice) {
  const auto on = Complete(
      "\"echo\":true,\"logprobs\":1,\"n\":2,\"max_tokens\":0,\"stream\":true");
  EXPECT_EQ(Sampling(1).prompt_logprobs, -1);
  engine_.End(1, FinishReason::kLength);
  TokenEvent event;
  event.prompt = {serving::WithLogprob('h', -2.0f)};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  EXPECT_TRUE(on->ended);
  std::vector<size_t> entries(2);
  for (const Json& chunk : on->Events()) {
    const Json& choice = chunk["choices"][0];
    entries.at(choice["index"].get<size_t>()) +=
        choice["logprobs"]["tokens"].size();
  }
  EXPECT_EQ(entries[0], 2u);
  EXPECT_EQ(entries[1], 2u);
}

TEST_F(GatewayFieldsTest, EchoKeepsItsOwnNumberOfLogprobs) {
  const auto on = Complete(
      "\"prompt_logprobs\":1,\"echo\":true,\"logprobs\":0,"
      "\"return_tokens_as_token_ids\":true");
  EXPECT_EQ(Sampling(0).prompt_logprobs, 1);
  TokenEvent event;
  event.prompt = {serving::WithLogprob('h', -2.0f)};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  const Json choice = on->Body()["choices"][0];
  EXPECT_EQ(DumpJson(choice["logprobs"]["top_logprobs"][1]),
            "{\"token_id:104\":-2.0}");
  EXPECT_EQ(choice["prompt_logprobs"][1].size(), 2u);
}

TEST_F(GatewayFieldsTest, EveryUsageHasTheCachedTokens) {
  const auto on = Complete(
      "\"stream\":true,\"stream_options\":{\"include_usage\":true,"
      "\"continuous_usage_stats\":true}");
  for (const char letter : {'a', 'b', 'c'}) {
    TokenEvent event;
    event.cached_tokens = 4;
    event.tokens = {{letter, {}, {}}};
    engine_.Tokens(0, event);
  }
  FinalEvent end;
  end.stats.cached_tokens = 4;
  engine_.End(0, end);
  size_t told = 0;
  for (const Json& event : on->Events()) {
    EXPECT_EQ(event["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
    ++told;
  }
  EXPECT_GE(told, 5u);
}

// "a", an emoji in its four bytes and "b", behind the prompt.
class GatewayOffsetsTest : public GatewayFieldsTest {
 protected:
  std::vector<int> Offsets(const std::string& fields) {
    const size_t sequence = engine_.submitted();
    const auto on = Complete(fields + "\"logprobs\":1,\"max_tokens\":6");
    const GenerateRequest request = engine_.request(sequence);
    if (request.sampling.prompt_logprobs >= 0) {
      TokenEvent prompt;
      for (size_t i = 1; i < request.prompt_tokens.size(); ++i) {
        prompt.prompt.push_back(
            serving::WithLogprob(request.prompt_tokens[i], -2.0f));
      }
      engine_.Tokens(sequence, prompt);
    }
    for (const TokenId token : serving::Bytes("a\xf0\x9f\x8e\x89"
                                              "b")) {
      TokenEvent event;
      event.tokens = {serving::WithLogprob(token, -1.0f)};
      engine_.Tokens(sequence, event);
    }
    engine_.End(sequence, FinishReason::kLength);
    std::vector<int> offsets;
    const auto take = [&](const Json& answer) {
      const Json& choice = answer["choices"][0];
      text_ += choice["text"];
      for (const Json& offset : choice["logprobs"]["text_offset"]) {
        offsets.push_back(offset);
      }
    };
    if (on->streaming) {
      for (const Json& event : on->Events()) take(event);
    } else {
      take(on->Body());
    }
    return offsets;
  }
  std::string text_;
};

TEST_F(GatewayOffsetsTest, CountTheCharactersOfTheReturnedText) {
  const std::string stream = "\"stream\":true,";
  for (const std::string& how : {std::string(), stream}) {
    text_.clear();
    EXPECT_THAT(Offsets(how), ElementsAre(0, 1, 1, 1, 1, 2));
    EXPECT_EQ(text_,
              "a\xf0\x9f\x8e\x89"
              "b");
    text_.clear();
    // BOS, which the text does not show, then "hello".
    EXPECT_THAT(Offsets(how + "\"echo\":true,"),
                ElementsAre(0, 0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 7));
    EXPECT_EQ(text_,
              "helloa\xf0\x9f\x8e\x89"
              "b");
  }
}

}  // namespace
}  // namespace sluice::gateway
