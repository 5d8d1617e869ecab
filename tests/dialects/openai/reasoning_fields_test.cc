// The names by which clients say whether and how much a model thinks.
#include "common/dialects/openai/reasoning_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/json.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/error.h"

namespace sluice::openai {
namespace {

using ::testing::HasSubstr;

StatusOr<serving::ChatRequest> Thinking(const std::string& fields) {
  return ParseChatRequest(
      Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],", fields,
          "}"),
      100);
}

std::string Variables(const std::string& fields) {
  const auto got = Thinking(fields);
  EXPECT_TRUE(got.ok()) << fields << ": " << got.status();
  return got.ok() ? DumpJson(got->chat_template.kwargs) : "";
}

std::string Refusal(const std::string& fields, std::string_view param) {
  const auto got = Thinking(fields);
  EXPECT_FALSE(got.ok()) << fields;
  if (got.ok()) return "";
  EXPECT_EQ(serving::ToApiError(got.status()).param.value_or("none"), param)
      << fields;
  return std::string(Message(got.status()));
}

TEST(ReasoningFieldsTest, EveryNameTurnsThinkingOff) {
  const std::string off = Variables("\"reasoning_effort\":\"none\"");
  for (
      const char* fields :
      {R"("enable_thinking":false)", R"("think":false)", R"("think":"none")",
       R"("thinking":{"type":"disabled"})", R"("thinking":false)",
       R"("reasoning":{"effort":"none"})", R"("reasoning":{"enabled":false})",
       R"("reasoning":{"max_tokens":0})", R"("reasoning_budget":0)",
       R"("thinking_budget":0)", R"("thinking_token_budget":0)",
       R"("think":false,"enable_thinking":false,"reasoning_budget":0)",
       R"("think":false,"chat_template_kwargs":{"reasoning_effort":"none"})"}) {
    EXPECT_EQ(*ParseJson(Variables(fields)), *ParseJson(off)) << fields;
  }
}

TEST(ReasoningFieldsTest, EveryNameTurnsThinkingOn) {
  for (const char* fields :
       {R"("enable_thinking":true)", R"("think":true)",
        R"("thinking":{"type":"enabled"})", R"("thinking":true)",
        R"("reasoning":{"enabled":true})"}) {
    EXPECT_EQ(Variables(fields), R"({"enable_thinking":true,"thinking":true})")
        << fields;
  }
}

TEST(ReasoningFieldsTest, EffortsHaveSeveralNames) {
  for (const char* fields :
       {R"("reasoning_effort":"high")", R"("think":"high")",
        R"("reasoning":{"effort":"high"})",
        R"("think":"high","reasoning_effort":"high")"}) {
    EXPECT_EQ(Variables(fields), R"({"reasoning_effort":"high"})") << fields;
  }
}

TEST(ReasoningFieldsTest, WhatSaysNothingChangesNothing) {
  for (const char* fields :
       {R"("think":null,"enable_thinking":null,"thinking":null)",
        R"("reasoning":null,"reasoning":{},"include_reasoning":true)",
        R"("reasoning":{"effort":null,"max_tokens":null,"summary":"auto"})",
        R"("thinking":{"type":"auto"},"reasoning_budget":-1)"}) {
    EXPECT_EQ(Variables(fields), "{}") << fields;
  }
}

TEST(ReasoningFieldsTest, GlmsThinkingHasAMemberOfTheTemplate) {
  EXPECT_EQ(
      Variables(R"("thinking":{"type":"enabled","clear_thinking":false})"),
      R"({"clear_thinking":false,"enable_thinking":true,"thinking":true})");
}

TEST(ReasoningFieldsTest, NamesThatDifferAreRefusedByBoth) {
  struct Case {
    const char* fields;
    const char* param;
    const char* other;
  };
  const Case cases[] = {
      {R"("enable_thinking":true,"think":false)", "think", "enable_thinking"},
      {R"("think":true,"thinking":{"type":"disabled"})", "thinking", "think"},
      {R"("enable_thinking":true,"reasoning_effort":"none")", "enable_thinking",
       "reasoning_effort"},
      {R"("reasoning_effort":"low","reasoning":{"effort":"high"})", "reasoning",
       "reasoning_effort"},
      {R"("reasoning_effort":"low","think":"high")", "think",
       "reasoning_effort"},
      {R"("reasoning_effort":"high","think":false)", "reasoning_effort",
       "think"},
      {R"("reasoning_budget":0,"think":true)", "reasoning_budget", "think"},
      {R"("think":false,"chat_template_kwargs":{"enable_thinking":true})",
       "chat_template_kwargs", "think"},
      {R"("reasoning_effort":"low",
          "chat_template_kwargs":{"reasoning_effort":"high"})",
       "chat_template_kwargs", "reasoning_effort"},
      {R"("include_reasoning":true,"reasoning":{"exclude":true})", "reasoning",
       "include_reasoning"}};
  for (const Case& one : cases) {
    EXPECT_THAT(Refusal(one.fields, one.param), HasSubstr("contradicts"))
        << one.fields;
    EXPECT_THAT(Refusal(one.fields, one.param), HasSubstr(one.other));
  }
}

TEST(ReasoningFieldsTest, WhatCannotBeHeldIsRefusedByName) {
  EXPECT_THAT(
      Refusal(R"("reasoning_budget":5,"thinking_budget":6)", "thinking_budget"),
      HasSubstr("contradicts reasoning_budget"));
  EXPECT_THAT(
      Refusal(R"("reasoning_budget":5,"thinking_budget":0)", "thinking_budget"),
      HasSubstr("contradicts reasoning_budget"));
  EXPECT_THAT(Refusal(R"("reasoning_budget":-2)", "reasoning_budget"),
              HasSubstr("the number -2"));
  EXPECT_THAT(Refusal(R"("reasoning":{"max_tokens":500})", "reasoning"),
              HasSubstr("max_tokens"));
  EXPECT_THAT(
      Refusal(R"("thinking":{"type":"enabled","budget_tokens":5})", "thinking"),
      HasSubstr("budget_tokens"));
  EXPECT_THAT(Refusal(R"("thinking":{"type":"deep"})", "thinking"),
              HasSubstr("\"disabled\""));
  EXPECT_THAT(Refusal(R"("think":5)", "think"), HasSubstr("the number 5"));
  EXPECT_THAT(Refusal(R"("think":"<|x|>")", "think"), HasSubstr("a word"));
  EXPECT_THAT(Refusal(R"("reasoning":{"effort":7})", "reasoning"),
              HasSubstr("effort"));
  EXPECT_THAT(Refusal(R"("reasoning":true)", "reasoning"), HasSubstr("object"));
  EXPECT_THAT(Refusal(R"("reasoning":{"foo":1})", "reasoning"),
              HasSubstr("foo"));
  const auto completion =
      ParseCompletionRequest(R"({"prompt":"a","reasoning_budget":0})", 100);
  EXPECT_EQ(serving::ToApiError(completion.status()).param.value_or("none"),
            "reasoning_budget");
}

TEST(ReasoningFieldsTest, ABudgetHasThreeNames) {
  for (const char* name :
       {"reasoning_budget", "thinking_token_budget", "thinking_budget"}) {
    const auto got = Thinking(Cat("\"", name, "\":500,\"think\":true"));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->fields.thinking_budget, 500);
    EXPECT_EQ(got->fields.thinking_budget_field, name);
    const auto none = Thinking(Cat("\"", name, "\":-1"));
    EXPECT_FALSE(none->fields.thinking_budget);
  }
}

TEST(ReasoningFieldsTest, AnAnswerLeavesReasoningOutByEitherName) {
  EXPECT_TRUE(Thinking(R"("include_reasoning":false)")->hides_reasoning);
  EXPECT_TRUE(Thinking(R"("reasoning":{"exclude":true})")->hides_reasoning);
  EXPECT_FALSE(Thinking(R"("reasoning":{"exclude":false})")->hides_reasoning);
  EXPECT_FALSE(Thinking(R"("include_reasoning":true)")->hides_reasoning);
}

}  // namespace
}  // namespace sluice::openai
