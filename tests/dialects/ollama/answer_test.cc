// Answers of /api/chat and /api/generate, streamed and whole.
#include <gmock/gmock.h>

#include "tests/dialects/ollama/ollama_fixture.h"

namespace sluice::ollama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFigures[] =
    R"("total_duration":1,"load_duration":1,"prompt_eval_count":6,)"
    R"("prompt_eval_duration":1,"eval_count":3,"eval_duration":1})";

std::string Chat(std::string_view more = "") {
  return Cat(R"({"model":"fake","messages":[{"role":"user","content":"hi"}])",
             more.empty() ? "" : ",", more, "}");
}

// An event of several tokens.
TokenEvent Event(std::string_view text) {
  TokenEvent event;
  for (const TokenId token : serving::Bytes(text)) {
    event.tokens.push_back({token, {}, {}});
  }
  return event;
}

TEST_F(OllamaTest, StreamsAChatAsLines) {
  const auto on = Ask("/api/chat", Chat());
  engine_.Start(0);
  engine_.Text(0, "a");
  engine_.Tokens(0, Event("\"b"));
  engine_.End(0, FinishReason::kLength);
  EXPECT_THAT(
      Lines(*on),
      ElementsAre(
          R"({"model":"fake","message":{"role":"assistant","content":"a"},)"
          R"("done":false})",
          R"({"model":"fake","message":{"role":"assistant",)"
          R"("content":"\"b"},"done":false})",
          Cat(R"({"model":"fake","message":{"role":"assistant",)",
              R"("content":""},"done":true,"done_reason":"length",)",
              kFigures)));
}

TEST_F(OllamaTest, AnswersAChatWhole) {
  const auto on = Ask("/api/chat", Chat(R"("stream":false)"));
  engine_.Start(0);
  engine_.Text(0, "a\"b");
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(on->responses.at(0).content_type, "application/json");
  EXPECT_EQ(WithoutTimes(on->Body()),
            Cat(R"({"model":"fake","message":{"role":"assistant",)",
                R"("content":"a\"b"},"done":true,"done_reason":"length",)",
                kFigures));
}

TEST_F(OllamaTest, StreamsACompletionAsLines) {
  const auto on = Ask("/api/generate", R"({"model":"fake:latest",)"
                                       R"("prompt":"hi"})");
  engine_.Start(0);
  engine_.Tokens(0, Event("abc"));
  engine_.End(0, FinishReason::kStop);
  EXPECT_THAT(
      Lines(*on),
      ElementsAre(R"({"model":"fake:latest","response":"abc","done":false})",
                  Cat(R"({"model":"fake:latest","response":"","done":true,)",
                      R"("done_reason":"stop",)", kFigures)));
}

TEST_F(OllamaTest, TimesAreMeasured) {
  const auto on = Ask("/api/chat", Chat(R"("stream":false)"));
  const TimePoint arrival = on->request().arrival;
  const auto wait = [] {
    const TimePoint begin = Clock::now();
    while (Clock::now() - begin < std::chrono::milliseconds(3)) {
    }
  };
  wait();
  engine_.Start(0);
  wait();
  engine_.Text(0, "a");
  wait();
  engine_.Text(0, "b");
  engine_.End(0, FinishReason::kStop);
  const int64_t all = (Clock::now() - arrival).count();
  const Json body = on->Body();
  int64_t sum = 0;
  for (const char* name :
       {"load_duration", "prompt_eval_duration", "eval_duration"}) {
    EXPECT_GE(body[name], 3'000'000) << name;
    sum += body[name].get<int64_t>();
  }
  EXPECT_GE(body["total_duration"], sum);
  EXPECT_LE(body["total_duration"], all);
}

// A model that thinks and calls: one script, streamed and whole.
constexpr char kScript[] =
    "<think>well</think>Now:<tool_call>\n{\"name\": \"f\", \"arguments\": "
    "{\"a\": [1, \"x\"]}}\n</tool_call>";
constexpr char kTools[] =
    R"("tools":[{"type":"function","function":{"name":"f"}}])";

TEST_F(OllamaTest, ThinkingAndCallsHavePlacesOfTheirOwn) {
  SetParsed();
  const auto on = Ask("/api/chat", Chat(kTools));
  engine_.Start(0);
  engine_.Tokens(0, Event(kScript));
  engine_.End(0, FinishReason::kStop);
  std::vector<std::string> lines = Lines(*on);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], R"({"model":"fake","message":{"role":"assistant",)"
                      R"("content":"","thinking":"well"},"done":false})");
  EXPECT_EQ(lines[1], R"({"model":"fake","message":{"role":"assistant",)"
                      R"("content":"Now:"},"done":false})");
  const Json call = *ParseJson(lines[2]);
  EXPECT_EQ(call["message"]["content"], "");
  EXPECT_THAT(call["message"]["tool_calls"][0]["id"].get<std::string>(),
              HasSubstr("call_"));
  EXPECT_EQ(DumpJson(call["message"]["tool_calls"][0]["function"]),
            R"({"index":0,"name":"f","arguments":{"a":[1,"x"]}})");
  EXPECT_THAT(lines[3], HasSubstr(R"("done_reason":"stop")"));
}

// Each byte an event: what clients join is the whole answer.
TEST_F(OllamaTest, AStreamJoinedIsTheWhole) {
  SetParsed();
  for (const FinishReason end : {FinishReason::kStop, FinishReason::kLength}) {
    for (const char* path : {"/api/chat", "/api/generate"}) {
      const bool chat = path == std::string_view("/api/chat");
      const std::string body =
          chat ? Chat(kTools) : R"({"model":"fake","prompt":"hi"})";
      const size_t first = engine_.submitted();
      const auto stream = Ask(path, body);
      const auto whole = Ask(
          path, Cat(body.substr(0, body.size() - 1), R"(,"stream":false})"));
      for (const size_t sequence : {first, first + 1}) {
        engine_.Start(sequence);
        for (const char c : std::string_view(kScript)) {
          engine_.Text(sequence, {&c, 1});
        }
        engine_.End(sequence, end);
      }
      Json joined = Json::object();
      for (const std::string& text : Lines(*stream)) {
        Json line = *ParseJson(text);
        Json& part = chat ? line["message"] : line;
        for (const char* name : {"content", "response", "thinking"}) {
          if (!part.contains(name)) continue;
          joined[name] = joined.value(name, "") + part[name].get<std::string>();
        }
        for (Json& call : part.value("tool_calls", Json::array())) {
          call.erase("id");
          joined["tool_calls"].push_back(call);
        }
        if (line["done"] == true) joined["done_reason"] = line["done_reason"];
      }
      Json body_of_whole = whole->Body();
      Json& message = chat ? body_of_whole["message"] : body_of_whole;
      Json expected = Json::object();
      for (const char* name : {"content", "response", "thinking"}) {
        if (message.contains(name)) expected[name] = message[name];
      }
      for (Json& call : message.value("tool_calls", Json::array())) {
        call.erase("id");
        expected["tool_calls"].push_back(call);
      }
      expected["done_reason"] = body_of_whole["done_reason"];
      EXPECT_TRUE(expected.contains("thinking"));
      EXPECT_EQ(expected.contains("tool_calls"), chat);
      EXPECT_EQ(joined, expected) << path;
    }
  }
}

TEST_F(OllamaTest, ACallThatTheLimitCutsIsNoCall) {
  SetParsed();
  const auto on = Ask("/api/chat", Chat(kTools));
  engine_.Start(0);
  engine_.Text(0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1");
  engine_.End(0, FinishReason::kLength);
  const std::vector<std::string> lines = Lines(*on);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr(R"("done_reason":"length")"));
}

TEST_F(OllamaTest, LogProbabilitiesAreBesideTheirText) {
  TokenEvent event;
  event.tokens.push_back(
      {'a',
       TokenLogprob{'a', -0.5f, 0},
       {TokenLogprob{'a', -0.5f, 0}, TokenLogprob{'b', -1.5f, 1}}});
  constexpr char kEntry[] =
      R"([{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[)"
      R"({"token":"a","logprob":-0.5,"bytes":[97]},)"
      R"({"token":"b","logprob":-1.5,"bytes":[98]}]}])";
  const auto stream =
      Ask("/api/chat", Chat(R"("logprobs":true,"top_logprobs":2)"));
  EXPECT_EQ(engine_.request(0).sampling.logprobs, 2);
  engine_.Start(0);
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kStop);
  const Json line = *ParseJson(Lines(*stream).at(0));
  EXPECT_EQ(DumpJson(line["logprobs"]), kEntry);
  const auto whole = Ask(
      "/api/chat", Chat(R"("logprobs":true,"top_logprobs":2,"stream":false)"));
  engine_.Start(1);
  engine_.Tokens(1, event);
  engine_.End(1, FinishReason::kStop);
  EXPECT_EQ(DumpJson(whole->Body()["logprobs"]), kEntry);
}

TEST_F(OllamaTest, AnErrorInAStreamIsALine) {
  const auto on = Ask("/api/chat", Chat());
  engine_.Start(0);
  engine_.Text(0, "a");
  FinalEvent end;
  end.reason = FinishReason::kError;
  end.status = Unavailable("stage 1 was lost");
  engine_.End(0, std::move(end));
  EXPECT_EQ(on->chunks.back(), "{\"error\":\"stage 1 was lost\"}\n");
}

TEST_F(OllamaTest, ABodyWithoutAPromptAsksForTheModel) {
  const auto answer = [this](std::string_view path, std::string_view more) {
    const auto on = Ask(path, Cat(R"({"model":"fake")", more, "}"));
    EXPECT_EQ(on->responses.at(0).status, 200);
    return WithoutTimes(on->Body());
  };
  constexpr char kLoaded[] =
      R"({"model":"fake","message":{"role":"assistant","content":""},)"
      R"("done":true,"done_reason":"load"})";
  EXPECT_EQ(answer("/api/chat", ""), kLoaded);
  EXPECT_EQ(answer("/api/chat", R"(,"messages":[],"keep_alive":"5m")"),
            kLoaded);
  EXPECT_EQ(answer("/api/generate", R"(,"prompt":"","keep_alive":-1)"),
            R"({"model":"fake","response":"","done":true,)"
            R"("done_reason":"load"})");
  for (const char* time : {"0", "\"0\"", "\"0s\"", "0.0"}) {
    EXPECT_EQ(answer("/api/generate", Cat(R"(,"keep_alive":)", time)),
              R"({"model":"fake","response":"","done":true,)"
              R"("done_reason":"unload"})");
  }
  EXPECT_EQ(engine_.submitted(), 0u);
}

TEST_F(OllamaTest, ARawPromptGoesToTheModelAsItIs) {
  SetParsed();
  const auto on =
      Ask("/api/generate", R"({"model":"fake","raw":true,"prompt":"hi",)"
                           R"("stream":false})");
  std::vector<TokenId> expected{serving::kFakeBos, 'h', 'i'};
  EXPECT_EQ(engine_.request(0).prompt_tokens, expected);
  engine_.Start(0);
  engine_.Text(0, "<think>x");
  engine_.End(0, FinishReason::kStop);
  EXPECT_EQ(on->Body()["response"], "<think>x");
}

TEST_F(OllamaTest, ASuffixMakesATextWithAHole) {
  const std::string body =
      R"({"model":"fake","prompt":"ab","suffix":"cd","stream":false})";
  const auto refused = Ask("/api/generate", body);
  EXPECT_EQ(refused->responses.at(0).status, 400);
  EXPECT_EQ(
      refused->Body()["error"],
      "suffix: this model cannot fill in: its vocabulary has no token for "
      "the prefix (such as <|fim_prefix|>)");
  auto text = std::make_unique<serving::FakeText>();
  text->names = {
      {"<|fim_prefix|>", 1}, {"<|fim_suffix|>", 2}, {"<|fim_middle|>", 3}};
  model_.text = std::move(text);
  Ask("/api/generate", body);
  const std::vector<TokenId> expected{
      serving::kFakeBos, 1, 'a', 'b', 2, 'c', 'd', 3};
  EXPECT_EQ(engine_.request(0).prompt_tokens, expected);
}

TEST_F(OllamaTest, TheAnswerGoesOnWithALastMessageOfTheModel) {
  Ask("/api/chat",
      R"({"model":"fake","messages":[{"role":"user","content":"h"},)"
      R"({"role":"assistant","content":"Yes"}]})");
  std::vector<TokenId> tokens = engine_.request(0).prompt_tokens;
  EXPECT_EQ(tokens.back(), 's') << "no turn of the model opens";
}

TEST_F(OllamaTest, ALimitAboveTheContextIsCut) {
  Ask("/api/chat", Chat(R"("options":{"num_predict":1000000})"));
  EXPECT_EQ(engine_.request(0).max_tokens, 4096 - 6);
  Ask("/api/generate", R"({"model":"fake","raw":true,"prompt":"hi"})");
  EXPECT_EQ(engine_.request(1).max_tokens, 4096 - 3);
  Ask("/api/chat", Chat(R"("options":{"num_predict":7,"num_ctx":99999})"));
  EXPECT_EQ(engine_.request(2).max_tokens, 7);
}

TEST_F(OllamaTest, APromptAboveTheContextIsRefused) {
  engine_.set_max_context(8);
  const auto on = Ask(
      "/api/chat",
      R"({"model":"fake","messages":[{"role":"user","content":"123456"}]})");
  EXPECT_EQ(on->responses.at(0).status, 400);
  EXPECT_THAT(on->Body()["error"].get<std::string>(),
              HasSubstr("messages: this model's maximum context length is 8"));
}

}  // namespace
}  // namespace sluice::ollama
