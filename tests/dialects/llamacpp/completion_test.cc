// Requests of llama.cpp's clients on their way to the engine, and the answers
// that they read.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/serving/answer_start.h"
#include "tests/dialects/llamacpp/llamacpp_fixture.h"

namespace sluice::llamacpp {
namespace {

using serving::Bytes;
using serving::kFakeBos;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(LlamacppTest, AnswersATextWhole) {
  const auto on = Ask(R"({"prompt":"hello","n_predict":4})");
  const GenerateRequest request = engine_.request(0);
  EXPECT_EQ(request.max_tokens, 4);
  EXPECT_EQ(request.prompt_tokens.front(), kFakeBos);
  EXPECT_EQ(request.prompt_tokens.size(), 6u);
  engine_.Start(0);
  engine_.Text(0, "hi\n");
  EndOfText(0);
  const Json answer = on->Body();
  EXPECT_EQ(answer["content"], "hi\n");
  EXPECT_EQ(answer["index"], 0);
  EXPECT_EQ(answer["tokens"], Json::array());
  EXPECT_EQ(answer["stop"], true);
  EXPECT_EQ(answer["model"], "fake");
  EXPECT_EQ(answer["prompt"], "<s>hello");
  EXPECT_EQ(answer["stop_type"], "eos");
  EXPECT_EQ(answer["stopping_word"], "");
  EXPECT_EQ(answer["tokens_predicted"], 4);  // with the end token
  EXPECT_EQ(answer["tokens_evaluated"], 6);
  EXPECT_EQ(answer["tokens_cached"], 2);
  EXPECT_EQ(answer["truncated"], false);
  EXPECT_EQ(answer["has_new_line"], true);
  EXPECT_EQ(answer["generation_settings"]["n_predict"], 4);
  EXPECT_EQ(answer["generation_settings"]["n_ctx"], 64);
  EXPECT_EQ(answer["timings"]["cache_n"], 2);
  EXPECT_EQ(answer["timings"]["prompt_n"], 4);
  EXPECT_EQ(answer["timings"]["predicted_n"], 4);
  EXPECT_FALSE(answer.contains("completion_probabilities"));
}

TEST_F(LlamacppTest, StreamsPiecesAndOneEnd) {
  const auto on =
      Ask(R"({"prompt":"hello","stream":true,"timings_per_token":true})");
  engine_.Start(0);
  engine_.Text(0, "h");
  engine_.Text(0, "i");
  EndOfText(0);
  const std::vector<Json> events = on->Events();
  ASSERT_EQ(events.size(), 4u);  // the end token is a piece without text
  EXPECT_EQ(events[0]["content"], "h");
  EXPECT_EQ(events[0]["tokens"], Json::array({'h'}));
  EXPECT_EQ(events[0]["stop"], false);
  EXPECT_EQ(events[0]["tokens_predicted"], 1);
  EXPECT_EQ(events[0]["timings"]["predicted_n"], 1);
  EXPECT_EQ(events[1]["content"], "i");
  EXPECT_EQ(events[1]["timings"]["predicted_n"], 2);
  EXPECT_EQ(events[2]["content"], "");
  EXPECT_EQ(events[3]["content"], "");
  EXPECT_EQ(events[3]["stop"], true);
  EXPECT_EQ(events[3]["stop_type"], "eos");
  EXPECT_TRUE(events[3].contains("generation_settings"));
  for (const std::string& chunk : on->chunks) {
    EXPECT_EQ(chunk.find("[DONE]"), chunk.npos) << chunk;
  }
}

TEST_F(LlamacppTest, TheWholeAnswerIsItsStreamTogether) {
  const auto play = [this](size_t sequence) {
    engine_.Start(sequence);
    engine_.Text(sequence, "one ");
    engine_.Text(sequence, "two STOP");
  };
  const std::string fields = R"("prompt":"a","seed":7,"stop":["STOP"])";
  const auto whole = Ask(Cat("{", fields, R"(,"return_tokens":true})"));
  play(0);
  const auto stream = Ask(Cat("{", fields, R"(,"stream":true})"));
  play(1);
  std::string content;
  Json tokens = Json::array();
  for (const Json& event : stream->Events()) {
    content += event["content"].get<std::string>();
    for (const Json& token : event["tokens"]) tokens.push_back(token);
  }
  EXPECT_EQ(content, "one two ");
  EXPECT_EQ(whole->Body()["content"], content);
  EXPECT_EQ(whole->Body()["tokens"], tokens);
  for (const Json& end : {whole->Body(), stream->Events().back()}) {
    EXPECT_EQ(end["stop_type"], "word");
    EXPECT_EQ(end["stopping_word"], "STOP");
    EXPECT_EQ(end["generation_settings"]["seed"], 7);
  }
}

TEST_F(LlamacppTest, GoesOnWithAStreamBehindAnyEvent) {
  event_ids_ = true;
  const std::string body = R"({"prompt":"a","seed":7,"stream":true})";
  const auto play = [this](size_t sequence) {
    engine_.Start(sequence);
    engine_.Text(sequence, "ab");
    engine_.Text(sequence, "cd");
    EndOfText(sequence);
  };
  const auto first = Ask(body);
  play(0);
  const auto id_of = [](const std::string& chunk) {
    const size_t begin = chunk.find("id: ") + 4;
    return chunk.substr(begin, chunk.find('\n', begin) - begin);
  };
  const std::vector<Json> all = first->Events();
  ASSERT_EQ(first->chunks.size(), all.size());
  for (size_t told = 0; told + 1 < all.size(); ++told) {
    const auto on = http::Post(kCompletionPath, body);
    on->request().headers.emplace_back(std::string(serving::kLastEventIdHeader),
                                       id_of(first->chunks[told]));
    Run(on);
    play(1 + told);
    std::string expected, got;
    for (size_t i = told + 1; i < all.size(); ++i) {
      expected += all[i]["content"].get<std::string>();
    }
    for (const Json& event : on->Events()) {
      got += event["content"].get<std::string>();
    }
    EXPECT_EQ(got, expected) << told;
    EXPECT_EQ(on->Events().back()["stop"], true);
  }
}

TEST_F(LlamacppTest, PromptsAreTextsTokensAndBothTogether) {
  Ask(R"({"prompt":[7,8]})");
  Ask(R"({"prompt":["a",8,"b"]})");
  Ask(R"({"prompt":[8,"b"]})");
  Ask(R"({"prompt":{"prompt_string":"a","multimodal_data":[]}})");
  EXPECT_THAT(engine_.request(0).prompt_tokens, ElementsAre(7, 8));
  EXPECT_THAT(engine_.request(1).prompt_tokens,
              ElementsAre(kFakeBos, 'a', 8, 'b'));
  EXPECT_THAT(engine_.request(2).prompt_tokens, ElementsAre(8, 'b'));
  EXPECT_THAT(engine_.request(3).prompt_tokens, ElementsAre(kFakeBos, 'a'));
}

TEST_F(LlamacppTest, SeveralPromptsAreAnsweredByAList) {
  const auto on = Ask(R"({"prompt":["a",[7,8],{"prompt_string":"b"}]})");
  ASSERT_EQ(engine_.submitted(), 3u);
  for (const size_t i : {2u, 0u, 1u}) {
    engine_.Start(i);
    engine_.Text(i, Cat("answer ", i));
    EndOfText(i);
  }
  const Json answers = on->Body();
  ASSERT_TRUE(answers.is_array());
  ASSERT_EQ(answers.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i]["index"], i);
    EXPECT_EQ(answers[i]["content"], Cat("answer ", i));
    EXPECT_EQ(answers[i]["tokens_evaluated"], 2);
  }
  EXPECT_EQ(answers[1]["prompt"], "\x07\x08");
}

TEST_F(LlamacppTest, ChoicesOfOnePromptAreAList) {
  const auto on = Ask(R"({"prompt":"a","n_cmpl":2,"n_predict":1})");
  ASSERT_EQ(engine_.submitted(), 2u);
  for (const size_t i : {0u, 1u}) {
    engine_.Start(i);
    engine_.Text(i, "x");
    engine_.End(i, FinishReason::kLength);
  }
  ASSERT_EQ(on->Body().size(), 2u);
  EXPECT_EQ(on->Body()[1]["stop_type"], "limit");
  EXPECT_EQ(on->Body()[1]["prompt"], "<s>a");
  EXPECT_EQ(on->Body()[1]["truncated"], false);
}

TEST_F(LlamacppTest, FillsTheContextAndSaysSo) {
  const auto on = Ask(R"({"prompt":"a","n_predict":1000})");
  EXPECT_EQ(engine_.request(0).max_tokens, 62);
  engine_.Start(0);
  engine_.Text(0, std::string(62, 'x'));
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->Body()["stop_type"], "limit");
  EXPECT_EQ(on->Body()["truncated"], true);
  Ask(R"({"prompt":"a"})");
  EXPECT_EQ(engine_.request(1).max_tokens, 62);
}

TEST_F(LlamacppTest, TellsProbabilitiesOfItsTokens) {
  for (const bool stream : {false, true}) {
    const auto on = Ask(Cat(R"({"prompt":"a","n_probs":1,"stream":)",
                            stream ? "true" : "false", "}"));
    const size_t sequence = stream ? 1 : 0;
    EXPECT_EQ(engine_.request(sequence).sampling.logprobs, 1);
    engine_.Start(sequence);
    Token(sequence, 'x', -0.5f);
    engine_.End(sequence, FinishReason::kLength);
    const Json answer = stream ? on->Events().at(0) : on->Body();
    EXPECT_EQ(answer["completion_probabilities"], *ParseJson(R"([
      {"id":120,"token":"x","bytes":[120],"logprob":-0.5,"top_logprobs":[
        {"id":33,"token":"!","bytes":[33],"logprob":-0.25}]}])"));
  }
}

TEST_F(LlamacppTest, ResponseFieldsChooseMembers) {
  const auto on =
      Ask(R"({"prompt":"a","response_fields":["content","nothing","stop/x",)"
          R"("generation_settings/n_ctx","timings/predicted_n"]})");
  engine_.Start(0);
  engine_.Text(0, "x");
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->Body(),
            *ParseJson(R"({"content":"x","n_ctx":64,"predicted_n":1})"));
}

TEST_F(LlamacppTest, ErrorsHaveLlamaCppsForm) {
  EXPECT_EQ(Refusal(R"({"prompt":5})"), *ParseJson(R"({"code":400,"message":
      "prompt: must be a string, an object with prompt_string, or an array of strings and token ids, got the number 5",
      "type":"invalid_request_error"})"));
  EXPECT_EQ(Refusal(R"({"prompt":"a","model":"other"})")["type"],
            "not_found_error");
  const Json too_long =
      Refusal(Cat(R"({"prompt":")", std::string(80, 'a'), R"("})"));
  EXPECT_EQ(too_long["code"], 400);
  EXPECT_EQ(too_long["type"], "exceed_context_size_error");
  EXPECT_EQ(too_long["n_prompt_tokens"], 81);
  EXPECT_EQ(too_long["n_ctx"], 64);
  const auto on = Ask(R"({"prompt":"a","stream":true})");
  engine_.Start(0);
  engine_.Text(0, "x");
  FinalEvent end;
  end.reason = FinishReason::kError;
  end.status = Unavailable("stage 1 was lost");
  engine_.End(0, std::move(end));
  EXPECT_EQ(on->chunks.back(),
            "data: {\"error\":{\"code\":503,\"message\":\"stage 1 was lost\","
            "\"type\":\"unavailable_error\"}}\n\n");
}

TEST_F(LlamacppTest, PropsTellTheModelAndNoPath) {
  model_.root = "/srv/ada/fake";
  http::HttpRequest request;
  request.method = "GET";
  request.path = "/props";
  const auto open = Run(std::make_shared<http::FakeExchange>(request));
  const Json props = open->Body();
  EXPECT_EQ(props["model_alias"], "fake");
  EXPECT_EQ(props["model_path"], "fake");
  EXPECT_EQ(props["chat_template"], "{{ messages }}");
  EXPECT_EQ(props["bos_token"], "<s>");
  EXPECT_EQ(props["modalities"]["vision"], false);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 64);
  EXPECT_EQ(props["default_generation_settings"]["params"]["n_predict"], -1);
  EXPECT_EQ(DumpJson(props).find("/srv"), std::string::npos);
  request.tenant = "ada";
  const auto known = Run(std::make_shared<http::FakeExchange>(request));
  EXPECT_EQ(known->Body()["model_path"], "/srv/ada/fake");
}

TEST_F(LlamacppTest, SlotsTellNoText) {
  http::HttpRequest request;
  request.method = "GET";
  request.path = "/slots";
  const auto on = Run(std::make_shared<http::FakeExchange>(request));
  const Json slots = on->Body();
  ASSERT_EQ(slots.size(), 64u);  // EngineOptions::max_running
  EXPECT_EQ(slots[3], *ParseJson(R"({"id":3,"n_ctx":64,"speculative":false,
                                     "is_processing":false})"));
  request.query = "fail_on_no_slot=1";
  EXPECT_EQ(Run(std::make_shared<http::FakeExchange>(request))
                ->responses.at(0)
                .status,
            200);
}

TEST_F(LlamacppTest, APathOfItsOwnIsSpokenInIt) {
  for (const char* path : {"/completion", "/completions", "/infill", "/props",
                           "/slots", "/apply-template"}) {
    http::HttpRequest request;
    request.path = path;
    EXPECT_TRUE(IsSpoken(request)) << path;
  }
  for (const char* path : {"/v1/completions", "/completion/x", "/tokenize"}) {
    http::HttpRequest request;
    request.path = path;
    EXPECT_FALSE(IsSpoken(request)) << path;
  }
}

}  // namespace
}  // namespace sluice::llamacpp
