// The gateway's handlers behind the HTTP server: bodies, models, large answers,
// and the series about all of it. tests/http tests the server itself.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>
#include <utility>

#include "tests/services/gateway/http_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A prompt of so many tokens, told of all at once: with their logprobs
// megabytes of a stream.
constexpr int kLongPrompt = 8000;

TEST_F(GatewayHttpTest, BadBodiesAreRefusedWithoutHarm) {
  std::string deep = "{\"prompt\":";
  for (int i = 0; i < 200000; ++i) deep += "[";
  for (const std::string& body :
       {deep, std::string("{\"prompt\":\"\xff\xfe\"}"),
        std::string("{\"prompt\":\"a\",\"max_tokens\":-5}"),
        std::string("{\"prompt\":\"a\",\"temperature\":NaN}"),
        std::string("not json")}) {
    Client client(port());
    ASSERT_TRUE(client.Send(PostOf("/v1/completions", body)));
    const std::string answer = client.ReceiveAnswer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(answer, HasSubstr("\"type\":\"invalid_request_error\""));
    // The connection is still good.
    client.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
  }
}

TEST_F(GatewayHttpTest, ModelsAreFoundHoweverTheirSlashIsWritten) {
  for (const char* name : {"fake", "%66ake"}) {
    EXPECT_THAT(
        Ask(Cat("GET /v1/models/", name, " HTTP/1.1\r\nHost: x\r\n\r\n")),
        StartsWith("HTTP/1.1 200 "));
  }
  for (const char* name : {"org/fake", "org%2Ffake"}) {
    const std::string answer =
        Ask(Cat("GET /v1/models/", name, " HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(answer, HasSubstr("org/fake"));
    EXPECT_THAT(answer, HasSubstr("model_not_found"));
  }
}

TEST_F(GatewayHttpTest, RequestsAreCountedByErrorToo) {
  Ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  Ask("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
  Ask("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n");
  server_->Stop();
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("sluice_gateway_requests_total{endpoint=\"/livez"
                              "\",error_type=\"\",status_class=\"2xx\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("sluice_gateway_requests_total{endpoint=\"other\","
                        "error_type=\"invalid_request_error\","
                        "status_class=\"4xx\"} 2"));
  EXPECT_THAT(text, HasSubstr("http_response_size_bytes_sum{handler=\"/livez"
                              "\"} 3"));
  EXPECT_THAT(text, Not(HasSubstr("nowhere")));
}

void BurnCpu(std::chrono::milliseconds time) {
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) +
           std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto end = used() + time;
  while (used() < end) {
  }
}

TEST_F(GatewayHttpTest, AnEventThatHoldsItsLoopIsMeasured) {
  more_routes_ = [](http::Router& router) {
    router.Add("GET", "/burn", [](std::shared_ptr<http::Exchange> on) {
      BurnCpu(std::chrono::milliseconds(70));
      on->Send({200, "text/plain", {}, "burnt\n"});
    });
    router.Add("GET", "/burn-later", [](std::shared_ptr<http::Exchange> on) {
      on->Post([on] {
        BurnCpu(std::chrono::milliseconds(90));
        on->Send({200, "text/plain", {}, "burnt\n"});
      });
    });
  };
  Restart({});
  GatewayMetrics::Sources sources;
  sources.http = &server_->stats();
  metrics_.Attach(std::move(sources));
  Client client(port());
  for (int i = 0; i < 20; ++i) {
    client.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    client.ReceiveAnswer();
  }
  EXPECT_EQ(server_->stats().long_holds, 0);
  client.Send("GET /burn HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("burnt\n"));
  EXPECT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.long_holds == 1;
  }));
  EXPECT_GE(server_->stats().longest_hold_ns, 70'000'000);
  client.Send("GET /burn-later HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReceiveAnswer(), EndsWith("burnt\n"));
  EXPECT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.long_holds == 2;
  }));
  EXPECT_GE(server_->stats().longest_hold_ns, 90'000'000);
  const std::string text = metrics_.Text();
  metrics_.Detach();
  EXPECT_THAT(text, HasSubstr("sluice_gateway_loop_long_holds_total 2"));
  EXPECT_THAT(text, HasSubstr("sluice_gateway_loop_longest_hold_seconds 0."));
}

TEST_F(GatewayHttpTest, WhoReadsOnIsNotCutOffByMuchAtOnce) {
  engine_.set_max_context(2 * kLongPrompt);
  Client client(port());
  const std::string text(size_t{kLongPrompt}, 'x');
  ASSERT_TRUE(client.Send(PostOf(
      "/v1/completions", Cat("{\"prompt\":\"", text,
                             "\",\"stream\":true,\"echo\":true,"
                             "\"logprobs\":5,\"n\":8,\"max_tokens\":1}"))));
  ASSERT_TRUE(engine_.AwaitSubmitted(8));
  TokenEvent event;
  for (const TokenId token : serving::Bytes(text)) {
    event.prompt.push_back(serving::WithLogprob(token, -1));
  }
  event.tokens = {serving::WithLogprob('a', -1)};
  engine_.Tokens(0, event);
  event.prompt.clear();
  for (size_t i = 0; i < 8; ++i) {
    if (i > 0) engine_.Tokens(i, event);
    engine_.End(i, FinishReason::kLength);
  }
  const std::string all = client.ReceiveUntil("[DONE]");
  EXPECT_GT(all.size(), size_t{3} << 19);
  EXPECT_THAT(all, EndsWith("[DONE]"));
  EXPECT_EQ(server_->stats().slow_readers, 0);
}

TEST_F(GatewayHttpTest, OneEventMayBeMegabytes) {
  Client client(port());
  ASSERT_TRUE(client.Send(ChatOf("\"stream\":true,\"logprobs\":true")));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  TokenEvent event;
  for (int i = 0; i < 20000; ++i)
    event.tokens.push_back(serving::WithLogprob('x', -1));
  engine_.Tokens(0, std::move(event));
  engine_.Text(0, "abc");
  engine_.End(0, FinishReason::kStop);
  const std::string all = client.ReceiveUntil("[DONE]");
  EXPECT_GT(all.size(), size_t{1} << 20);
  EXPECT_THAT(all, EndsWith("[DONE]"));
}

TEST_F(GatewayHttpTest, ABodyWhoseClientLeftCountsUntilItsTurnAndIsNotRead) {
  TurnQueue work({.threads = 1, .max_queued = 8});
  work_ = &work;
  Restart({});
  std::atomic<bool> begun{false};
  std::atomic<bool> go_on{false};
  const auto hold = [&] {
    begun = true;
    while (!go_on) std::this_thread::yield();
  };
  ASSERT_TRUE(work.Push({.run = hold}).ok());
  while (!begun) std::this_thread::yield();
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    Client client(port());
    const size_t before = work.queued();
    EXPECT_TRUE(client.Send(PostOf(path, std::string(9000, ' '))));
    while (work.queued() == before) std::this_thread::yield();
    client.Reset();
  }
  EXPECT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.disconnects == 2 && stats.exchanges == 0;
  }));
  EXPECT_EQ(server_->stats().body_bytes, 18000);
  go_on = true;
  work.Stop();
  EXPECT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.body_bytes == 0;
  }));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("sluice_gateway_tokenize_seconds_count 0"));
}

}  // namespace
}  // namespace sluice::gateway
