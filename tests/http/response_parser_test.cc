#include "common/http/response_parser.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::http {
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

}  // namespace
}  // namespace sluice::http
