// What --access-log tells of requests, over real sockets.
#include "services/gateway/access_log.h"

#include <gmock/gmock.h>

#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/services/gateway/http_fixture.h"
#include "tests/testing/captured_stderr.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class AccessLogTest : public GatewayHttpTest {
 protected:
  AccessLogTest() {
    access_log_ = true;
    EXPECT_TRUE(SetUpLog("json", "info").ok());
  }
  ~AccessLogTest() override { EXPECT_TRUE(SetUpLog("text", "info").ok()); }

  // The one request's line, once the server has ended.
  Json Line() {
    TearDown();
    text_ = captured_.Text();
    std::istringstream in(text_);
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) {
      const auto json = ParseJson(line);
      EXPECT_TRUE(json.ok()) << line;
      if (json.ok() && (*json)["message"] == "access") lines.push_back(*json);
    }
    EXPECT_THAT(lines, SizeIs(1)) << text_;
    return lines.empty() ? Json() : lines.back();
  }

  CapturedStderr captured_;
  std::string text_;
};

TEST_F(AccessLogTest, AStreamsLineHasItsFiguresAndNoText) {
  Client client(port());
  client.Send(PostOf("/v1/chat/completions?secret=1",
                     "{\"messages\":[{\"role\":\"user\",\"content\":"
                     "\"a sentence of the prompt\"}],\"stream\":true}",
                     "X-Request-Id: mine-1\r\n"));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  engine_.Text(0, "xyzzy");
  engine_.End(0, FinishReason::kStop);
  client.ReceiveUntil("0\r\n\r\n");
  const Json line = Line();
  EXPECT_EQ(line["request_id"], "mine-1");
  EXPECT_EQ(line["address"], "127.0.0.1");
  EXPECT_FALSE(line.contains("key"));
  EXPECT_EQ(line["method"], "POST");
  EXPECT_EQ(line["path"], "/v1/chat/completions");
  EXPECT_EQ(line["status"], 200);
  EXPECT_FALSE(line.contains("error_type"));
  EXPECT_GT(line["prompt_tokens"], 10);
  EXPECT_EQ(line["completion_tokens"], 5);
  EXPECT_EQ(line["cached_tokens"], 0);
  EXPECT_EQ(line["finish"], "stop");
  EXPECT_GT(line["first_token_ms"], 0);
  EXPECT_GE(line["ms"], line["first_token_ms"]);
  for (const char* secret : {"sentence", "xyzzy", "secret"}) {
    EXPECT_THAT(text_, Not(HasSubstr(secret)));
  }
}

TEST_F(AccessLogTest, ChoicesThatEndInDifferentWaysNameBoth) {
  Client client(port());
  client.Send(ChatOf("\"n\":3"));
  ASSERT_TRUE(engine_.AwaitSubmitted(3));
  engine_.End(0, FinishReason::kLength);
  engine_.End(1, FinishReason::kStop);
  engine_.End(2, FinishReason::kLength);
  client.ReceiveAnswer();
  EXPECT_EQ(Line()["finish"], "length,stop");
}

TEST_F(AccessLogTest, ARefusedRequestNamesItsErrorAndGeneratesNothing) {
  Client client(port());
  client.Send(ChatOf("\"model\":\"gone\""));
  client.ReceiveAnswer();
  const Json line = Line();
  EXPECT_EQ(line["status"], 404);
  EXPECT_EQ(line["error_type"], "invalid_request_error");
  EXPECT_EQ(line["error_code"], "model_not_found");
  EXPECT_FALSE(line.contains("prompt_tokens"));
  EXPECT_FALSE(line.contains("first_token_ms"));
}

TEST_F(AccessLogTest, AnErrorThatEndsAStreamIsNamed) {
  Client client(port());
  client.Send(ChatOf("\"stream\":true"));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  engine_.Text(0, "ab");
  engine_.End(0, {.reason = FinishReason::kError,
                  .status = Unavailable("a stage was lost")});
  client.ReceiveUntil("0\r\n\r\n");
  const Json line = Line();
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["error_type"], "service_unavailable_error");
  EXPECT_EQ(line["completion_tokens"], 2);
}

TEST_F(AccessLogTest, AClientThatLeavesIsA499WithWhatItGot) {
  Client client(port());
  client.Send(ChatOf("\"stream\":true"));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  engine_.Text(0, "abc");
  client.ReceiveUntil("data: ");
  client.Reset();
  ASSERT_TRUE(engine_.AwaitCancelled(1));
  const Json line = Line();
  EXPECT_EQ(line["status"], 499);
  EXPECT_EQ(line["completion_tokens"], 3);
}

TEST_F(AccessLogTest, WhatNeverBecameARequestIsTold) {
  Client client(port());
  client.Send("GET /livez HTTP/1.1\r\nHost: x\r\nX: " +
              std::string(20000, 'y') + "\r\n\r\n");
  client.ReceiveAnswer();
  const Json line = Line();
  EXPECT_EQ(line["status"], 431);
  EXPECT_EQ(line["error_code"], "header_too_large");
}

TEST_F(AccessLogTest, APathOfAClientsOwnForgesNoLine) {
  ASSERT_TRUE(SetUpLog("text", "info").ok());
  Client client(port());
  client.Send("GET /a%22b%5cc%20status=200%c3%28" + std::string(300, 'z') +
              " HTTP/1.1\r\nHost: x\r\n\r\n");
  client.ReceiveAnswer();
  TearDown();
  const std::string text = captured_.Text();
  EXPECT_THAT(text, HasSubstr(" I access request_id="));
  EXPECT_THAT(text, HasSubstr("path=\"/a\\\"b\\\\c status=200\xc3(zzz"));
  EXPECT_THAT(text, Not(HasSubstr(std::string(257, 'z'))));
  EXPECT_THAT(text, HasSubstr("z\" status=404 "));
}

}  // namespace
}  // namespace sluice::gateway
