// The bytes of an answer: HTTP, events, chunks.
#include <gtest/gtest.h>

#include <string>

#include "services/cli/response_parser.h"
#include "services/cli/stream_chunk.h"

namespace sluice::cli {
namespace {

constexpr char kChunked[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\n\r\n"
    "9\r\ndata: a\n\n\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n";

TEST(ResponseParserTest, AnAnswerIsTheSameHoweverItsBytesArrive) {
  const std::string bytes = kChunked;
  for (size_t step = 1; step <= bytes.size(); ++step) {
    ResponseParser parser;
    std::string body;
    for (size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_TRUE(parser.Feed(std::string_view(bytes).substr(at, step)).ok());
      body += parser.TakeBody();
    }
    EXPECT_TRUE(parser.is_done());
    EXPECT_TRUE(parser.is_event_stream());
    EXPECT_TRUE(parser.keep_alive());
    EXPECT_EQ(body, "data: a\n\ndata: b\n\n") << step;
  }
}

TEST(ResponseParserTest, ABodyIsGivenBeforeItsChunkEnds) {
  ResponseParser parser;
  ASSERT_TRUE(parser
                  .Feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                        "20\r\ndata: a")
                  .ok());
  EXPECT_EQ(parser.TakeBody(), "data: a");
  EXPECT_FALSE(parser.is_done());
}

TEST(ResponseParserTest, ARefusalTellsItsRetryAfter) {
  ResponseParser parser;
  ASSERT_TRUE(parser
                  .Feed("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\n"
                        "Content-Length: 2\r\nConnection: close\r\n\r\n{}")
                  .ok());
  EXPECT_TRUE(parser.is_done());
  EXPECT_EQ(parser.status(), 429);
  EXPECT_EQ(parser.retry_after_s(), 3);
  EXPECT_FALSE(parser.keep_alive());
}

TEST(ResponseParserTest, AConnectionClosedEarlyIsAnErrorAndOtherBytesToo) {
  ResponseParser parser;
  ASSERT_TRUE(parser.Feed(std::string_view(kChunked, 100)).ok());
  EXPECT_FALSE(parser.Close().ok());
  ResponseParser other;
  EXPECT_FALSE(other.Feed("SSH-2.0-OpenSSH\r\n\r\n").ok());
  ResponseParser until_close;
  ASSERT_TRUE(until_close.Feed("HTTP/1.1 200 OK\r\n\r\nhello").ok());
  EXPECT_TRUE(until_close.Close().ok());
  EXPECT_EQ(until_close.TakeBody(), "hello");
}

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
}  // namespace sluice::cli
