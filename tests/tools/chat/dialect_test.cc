#include "common/tools/chat/dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::chat {
namespace {

using ::testing::HasSubstr;

const Transcript kSaid{"Be brief.",
                       {{"max_tokens", 9},
                        {"stop", "x"},
                        {"top_k", 3},
                        {"reasoning_effort", "low"}},
                       {{true, "Hi"}, {false, "Ho"}, {true, "?"}}};
constexpr char kTurns[] =
    R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"},)"
    R"({"role":"user","content":"?"}])";
constexpr char kAllTurns[] =
    R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},)"
    R"({"role":"assistant","content":"Ho"},{"role":"user","content":"?"}])";

std::string BodyOf(Dialect dialect) {
  const auto body = RequestOf({{}, dialect, "m"}, kSaid);
  return body.ok() ? DumpJson(*body) : std::string(Message(body.status()));
}

TEST(ChatDialectTest, SettingsHaveEachDialectsNames) {
  EXPECT_EQ(BodyOf(Dialect::kChat),
            std::string(R"({"model":"m","stream":true,"stream_options":)"
                        R"({"include_usage":true},"max_tokens":9,"stop":"x",)"
                        R"("top_k":3,"reasoning_effort":"low","messages":)") +
                kAllTurns + "}");
  EXPECT_EQ(BodyOf(Dialect::kResponses),
            std::string(R"({"model":"m","stream":true,"store":false,)"
                        R"("max_output_tokens":9,"stop":"x","top_k":3,)"
                        R"("reasoning":{"effort":"low"},"instructions":)"
                        R"("Be brief.","input":)") +
                kTurns + "}");
  EXPECT_EQ(
      BodyOf(Dialect::kMessages),
      std::string(R"({"model":"m","stream":true,"max_tokens":9,)"
                  R"("stop_sequences":["x"],"top_k":3,"output_config":)"
                  R"({"effort":"low"},"system":"Be brief.","messages":)") +
          kTurns + "}");
  EXPECT_EQ(BodyOf(Dialect::kOllama),
            std::string(R"({"model":"m","stream":true,"options":{)"
                        R"("num_predict":9,"stop":"x","top_k":3},)"
                        R"("think":"low","messages":)") +
                kAllTurns + "}");
}

TEST(ChatDialectTest, ASettingWithinAnotherNeedsAnObject) {
  const auto body = [](Dialect dialect, const char* name, const Json& value) {
    Transcript said = kSaid;
    said.settings = {{name, value}, {"reasoning_effort", "low"}};
    return RequestOf({{}, dialect, "m"}, said);
  };
  for (const Json& value : {Json("high"), Json(3), Json::array()}) {
    const Status refused =
        body(Dialect::kResponses, "reasoning", value).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << value;
    EXPECT_THAT(Message(refused), HasSubstr("reasoning.effort"));
    EXPECT_EQ(body(Dialect::kMessages, "output_config", value).status().code(),
              StatusCode::kInvalidArgument);
  }
  const auto joined =
      body(Dialect::kResponses, "reasoning", {{"summary", "auto"}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(DumpJson((*joined)["reasoning"]),
            R"({"summary":"auto","effort":"low"})");
  EXPECT_TRUE(body(Dialect::kResponses, "reasoning", nullptr).ok());
}

TEST(ChatDialectTest, NamesAreThoseOfTheOption) {
  for (const char* name : {"chat", "responses", "messages", "ollama"}) {
    ASSERT_TRUE(ParseDialect(name).ok());
    EXPECT_EQ(NameOf(*ParseDialect(name)), name);
  }
  EXPECT_THAT(Message(ParseDialect("soap").status()), HasSubstr("'soap'"));
}

TEST(ChatDialectTest, ErrorsOfEachDialectHaveTheServersWords) {
  const std::pair<Dialect, const char*> errors[] = {
      {Dialect::kChat, R"({"error":{"message":"no room"}})"},
      {Dialect::kResponses,
       R"({"type":"response.failed","response":{"error":{"message":"no room"}}})"},
      {Dialect::kResponses, R"({"type":"error","message":"no room"})"},
      {Dialect::kMessages,
       R"({"type":"error","error":{"type":"api_error","message":"no room"}})"},
      {Dialect::kOllama, R"({"error":"no room"})"}};
  for (const auto& [dialect, event] : errors) {
    const Status status = ReadPart(dialect, event).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << event;
    EXPECT_EQ(Message(status), "no room") << event;
  }
}

TEST(ChatDialectTest, EventsOfAnyShapeAreReadOrRefused) {
  for (const Dialect dialect : {Dialect::kChat, Dialect::kResponses,
                                Dialect::kMessages, Dialect::kOllama}) {
    EXPECT_FALSE(ReadPart(dialect, "7").ok());
    EXPECT_FALSE(ReadPart(dialect, "{").ok());
    for (const char* event :
         {"{}", R"({"choices":[7],"usage":7,"message":7,"delta":7,"done":7})",
          R"({"choices":7,"type":7,"response":7})",
          R"({"type":"response.completed","response":{"usage":[]}})",
          R"({"choices":[{"delta":{"content":7}}],"delta":{"text":[]}})"}) {
      const auto part = ReadPart(dialect, event);
      ASSERT_TRUE(part.ok()) << event;
      EXPECT_EQ(part->text, "");
    }
  }
}

TEST(ChatDialectTest, UsageCountsTheWholePromptInEachDialect) {
  const std::pair<Dialect, const char*> events[] = {
      {Dialect::kChat, R"({"choices":[],"usage":{"prompt_tokens":10,
          "completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}})"},
      {Dialect::kResponses, R"({"type":"response.completed","response":{"usage":
          {"input_tokens":10,"output_tokens":3,
           "input_tokens_details":{"cached_tokens":8}}}})"},
      {Dialect::kMessages, R"({"type":"message_start","message":{"usage":
          {"input_tokens":1,"output_tokens":3,"cache_read_input_tokens":8,
           "cache_creation_input_tokens":1}}})"}};
  for (const auto& [dialect, event] : events) {
    const auto part = ReadPart(dialect, event);
    ASSERT_TRUE(part.ok());
    EXPECT_EQ(part->prompt_tokens, 10) << event;
    EXPECT_EQ(part->cached_tokens, 8) << event;
    EXPECT_EQ(part->completion_tokens, 3) << event;
  }
  const auto part =
      ReadPart(Dialect::kOllama, R"({"done":true,"done_reason":"length",
                            "prompt_eval_count":10,"eval_count":3})");
  EXPECT_TRUE(part->is_end);
  EXPECT_EQ(part->finish, "length");
  EXPECT_EQ(part->prompt_tokens, 10);
  EXPECT_EQ(part->completion_tokens, 3);
}

}  // namespace
}  // namespace sluice::chat
