#include "common/tools/load/stream_chunk.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::load {
namespace {

TEST(StreamChunkTest, TokenIdsCountBeforeText) {
  const auto chunk = ParseStreamChunk(
      R"({"choices":[{"index":0,"text":"","token_ids":[1,2]}],"usage":null})");
  ASSERT_TRUE(chunk.ok());
  EXPECT_EQ(chunk->Tokens(), 2);
  const auto text = ParseStreamChunk(R"({"choices":[{"text":"ab"}]})");
  EXPECT_EQ(text->Tokens(), 1);
  const auto role = ParseStreamChunk(
      R"({"choices":[{"delta":{"role":"assistant","content":""}}]})");
  EXPECT_EQ(role->Tokens(), 0);
}

TEST(StreamChunkTest, ChatTextReasoningAndToolCallsAreTokens) {
  for (const char* delta :
       {R"({"content":"a"})", R"({"reasoning_content":"a"})",
        R"({"reasoning":"a"})", R"({"tool_calls":[{}]})"}) {
    const auto chunk =
        ParseStreamChunk(Cat(R"({"choices":[{"delta":)", delta, "}]}"));
    ASSERT_TRUE(chunk.ok());
    EXPECT_EQ(chunk->Tokens(), 1) << delta;
  }
}

TEST(StreamChunkTest, UsageFinishEndAndErrorAreRead) {
  const auto usage = ParseStreamChunk(
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9,)"
      R"("prompt_tokens_details":{"cached_tokens":4}}})");
  EXPECT_EQ(usage->prompt_tokens, 7);
  EXPECT_EQ(usage->completion_tokens, 9);
  EXPECT_EQ(usage->cached_tokens, 4);
  const auto finish =
      ParseStreamChunk(R"({"choices":[{"text":"","finish_reason":"length"}]})");
  EXPECT_TRUE(finish->is_finish);
  EXPECT_TRUE(ParseStreamChunk("[DONE]")->is_end);
  EXPECT_EQ(ParseStreamChunk(R"({"error":{"message":"lost"}})")->error, "lost");
  EXPECT_FALSE(ParseStreamChunk("{").ok());
  EXPECT_FALSE(ParseStreamChunk("3").ok());
}

}  // namespace
}  // namespace sluice::load
