// Answers that are too large for an event loop to write.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "common/base/exception_counts.h"
#include "common/base/json.h"
#include "tests/services/gateway/http_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kPrompt = 3000;
constexpr int kChoices = 4;

// A text side of which a token's text fails once it is told to.
class FailingText : public serving::FakeText {
 public:
  std::string TokenBytes(TokenId token) const override {
    if (fails) throw std::bad_alloc();
    return serving::FakeText::TokenBytes(token);
  }
  std::atomic<bool> fails{false};
};

class LargeAnswerTest : public GatewayHttpTest {
 protected:
  // As GatewayServer::Stop: jobs hold exchanges of the server.
  void TearDown() override {
    queue_.Stop();
    GatewayHttpTest::TearDown();
  }

  void SetUp() override {
    auto text = std::make_unique<FailingText>();
    text_ = text.get();
    const_cast<serving::ServedModel&>(model_).text = std::move(text);
    engine_.set_max_context(2 * kPrompt);
    options_.threads = 1;
    work_ = &queue_;
    Start({});
  }

  // Asks for kChoices choices of kPrompt tokens with their logprobs, and has
  // them told. `first`: the sequences of earlier requests.
  void Ask(Client& client, const char* fields, const std::string& headers = "",
           size_t first = 0) {
    const std::string prompt(size_t{kPrompt}, 'x');
    ASSERT_TRUE(client.Send(PostOf(
        "/v1/completions",
        Cat("{\"prompt\":\"", prompt, "\",\"n\":", kChoices,
            ",\"max_tokens\":1,\"logprobs\":5,\"echo\":true", fields, "}"),
        headers + "Connection: close\r\n")));
    ASSERT_TRUE(engine_.AwaitSubmitted(first + kChoices));
    TokenEvent event;
    for (const TokenId token : serving::Bytes(prompt)) {
      event.prompt.push_back(serving::WithLogprob(token, -1));
    }
    event.tokens = {serving::WithLogprob('a', -1)};
    engine_.Tokens(first, event);
    event.prompt.clear();
    for (size_t i = 0; i < kChoices; ++i) {
      if (i > 0) engine_.Tokens(first + i, event);
      engine_.End(first + i, FinishReason::kLength);
    }
  }

  // Counts the tokens of an event, and checks the offset of its first one.
  static size_t TokensOf(std::string_view event, size_t offset) {
    const size_t data = event.find("data: ") + 6;
    const size_t end = event.find('\n');
    const Json choice =
        Json::parse(event.substr(data, end - data))["choices"][0];
    const Json& logprobs = choice["logprobs"];
    if (!logprobs.is_object() || logprobs["tokens"].empty()) return 0;
    EXPECT_EQ(logprobs["text_offset"][0], offset);
    return logprobs["tokens"].size();
  }

  // The body of a chunked answer.
  static std::string Unchunked(const std::string& answer) {
    size_t at = answer.find("\r\n\r\n") + 4;
    std::string body;
    while (at < answer.size()) {
      const size_t size = std::stoul(answer.substr(at, 16), nullptr, 16);
      at = answer.find("\r\n", at) + 2;
      body += answer.substr(at, size);
      at += size + 2;
      if (size == 0) break;
    }
    return body;
  }

  TurnQueue queue_{{.threads = 1}};
  FailingText* text_ = nullptr;
};

TEST_F(LargeAnswerTest, AWholeOneComesInPiecesAndIsWhole) {
  Client client(port());
  Ask(client, ",\"prompt_logprobs\":1");
  const std::string answer = client.ReceiveAll();
  EXPECT_THAT(answer, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_THAT(answer, EndsWith("0\r\n\r\n"));
  const Json body = Json::parse(Unchunked(answer));
  ASSERT_EQ(body["choices"].size(), size_t{kChoices});
  for (const Json& choice : body["choices"]) {
    const Json& logprobs = choice["logprobs"];
    for (const char* list :
         {"tokens", "token_logprobs", "text_offset", "top_logprobs"}) {
      EXPECT_EQ(logprobs[list].size(), size_t{kPrompt} + 2) << list;
    }
    EXPECT_EQ(choice["prompt_logprobs"].size(), size_t{kPrompt} + 1);
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    EXPECT_EQ(logprobs["text_offset"].back(), size_t{kPrompt});
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], kChoices);
}

TEST_F(LargeAnswerTest, OneInPiecesHasTheEventsOfOneThatIsNot) {
  Client client(port());
  Ask(client, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  const std::string body = Unchunked(client.ReceiveAll());
  EXPECT_THAT(body, EndsWith("data: [DONE]\n\n"));
  size_t told = 0, events = 0;
  for (size_t at = 0; (at = body.find("data: {", at)) != std::string::npos;) {
    const size_t end = body.find('\n', at);
    const Json event = Json::parse(body.substr(at + 6, end - at - 6));
    at = end;
    ++events;
    if (event["choices"].empty()) {
      EXPECT_EQ(event["usage"]["completion_tokens"], kChoices);
      continue;
    }
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_object()) told += logprobs["tokens"].size();
  }
  EXPECT_EQ(told, size_t{kChoices} * (kPrompt + 2));
  EXPECT_GE(events, size_t{kChoices} + 1);
}

TEST_F(LargeAnswerTest, AStreamGoesOnBehindALargeEvent) {
  Client client(port());
  Ask(client, ",\"seed\":1,\"stream\":true");
  const std::string whole = Unchunked(client.ReceiveAll());
  const std::string event = whole.substr(0, whole.find("\n\n"));
  const size_t id = event.rfind("\nid: ");
  ASSERT_NE(id, std::string::npos);
  EXPECT_GT(event.size(), size_t{64} << 10);
  const size_t told = TokensOf(event, 0);
  EXPECT_EQ(told, size_t{kPrompt} + 2);
  Client again(port());
  Ask(again, ",\"seed\":1,\"stream\":true",
      Cat("Last-Event-ID: ", event.substr(id + 5), "\r\n"), kChoices);
  const std::string rest = Unchunked(again.ReceiveAll());
  EXPECT_EQ(rest.substr(rest.find("data: {\"id\"")),
            whole.substr(event.size() + 2));
}

TEST_F(LargeAnswerTest, TheLoopGoesOnWhileNoTextThreadIsFree) {
  std::atomic<bool> held{true};
  const auto hold = [&held] {
    while (held) std::this_thread::yield();
  };
  Client client(port());
  ASSERT_TRUE(queue_.Push({.run = hold}).ok());
  Ask(client, "");
  Client probe(port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(probe.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_THAT(probe.ReceiveAnswer(), EndsWith("ok\n"));
  }
  EXPECT_FALSE(client.Readable(std::chrono::milliseconds(0)));
  held = false;
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(LargeAnswerTest, NoMoreIsMadeThanItsClientReads) {
  Client client(port(), /*receive_buffer=*/4096);
  Ask(client, ",\"prompt_logprobs\":1");
  ASSERT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.backlog_bytes > 0;
  }));
  EXPECT_LT(server_->stats().backlog_bytes, 1 << 20);
  EXPECT_GT(client.ReceiveAll().size(), size_t{3} << 19);
}

TEST_F(LargeAnswerTest, AnExceptionBeforeItBeginsIsAnError) {
  text_->fails = true;
  const uint64_t before = ExceptionsAt("text");
  Client client(port());
  Ask(client, "");
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(ExceptionsAt("text"), before + 1);
}

TEST_F(LargeAnswerTest, AnExceptionInASmallWholeOneIsAnErrorToo) {
  text_->fails = true;
  Client client(port());
  ASSERT_TRUE(client.Send(PostOf(
      "/v1/completions", "{\"prompt\":\"hi\",\"max_tokens\":1,\"logprobs\":1}",
      "Connection: close\r\n")));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  TokenEvent event;
  event.tokens = {serving::WithLogprob('a', -1)};
  engine_.Tokens(0, event);
  engine_.End(0, FinishReason::kLength);
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 503 "));
}

TEST_F(LargeAnswerTest, AClientThatLeavesEndsIt) {
  {
    Client client(port(), /*receive_buffer=*/4096);
    Ask(client, "");
    ASSERT_TRUE(Await([](const http::HttpServerStats& stats) {
      return stats.backlog_bytes > 0;
    }));
    client.Reset();
  }
  EXPECT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.exchanges == 0 && stats.backlog_bytes == 0;
  }));
}

TEST_F(LargeAnswerTest, WhatIsCollectedCountsAndTheLargestEndsWithAnError) {
  http::HttpLimits limits;
  limits.all_backlog_bytes = 64 << 10;
  server_.reset();
  Start(limits);
  Client client(port());
  Ask(client, "");
  const std::string answer = client.ReceiveAll();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("memory for answers is short"));
}

}  // namespace
}  // namespace sluice::gateway
