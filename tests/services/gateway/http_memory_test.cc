// What the server holds in memory for its clients: answers that they have not
// read, bodies that were not parsed yet.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "tests/services/gateway/http_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GatewayMemoryTest : public GatewayHttpTest {
 protected:
  // Reads kLargeAnswer bytes evenly in no less than `whole`, and then what is
  // left: how many there were, and the longest time between two reads.
  static std::pair<size_t, Duration> ReadSteadily(
      Client& client, std::chrono::duration<double> whole) {
    const TimePoint begin = Clock::now();
    TimePoint last = begin;
    Duration longest{};
    size_t received = 0;
    std::string part;
    do {
      part = client.Receive();
      received += part.size();
      longest = std::max<Duration>(longest, Clock::now() - last);
      last = Clock::now();
      const double share = static_cast<double>(received) / kLargeAnswer;
      std::this_thread::sleep_until(
          begin + std::chrono::duration_cast<Duration>(whole * share));
    } while (!part.empty());
    return {received, longest};
  }
};

// A prompt of so many tokens, told of all at once: with their logprobs
// megabytes of a stream.
constexpr int kLongPrompt = 8000;

TEST_F(GatewayMemoryTest, WhoReadsOnIsNotCutOffByMuchAtOnce) {
  engine_.set_max_context(2 * kLongPrompt);
  Client client(port());
  const std::string text(size_t{kLongPrompt}, 'x');
  ASSERT_TRUE(client.Send(PostOf(
      "/v1/completions", Cat("{\"prompt\":\"", text,
                             "\",\"stream\":true,\"echo\":true,"
                             "\"logprobs\":5,\"n\":8,\"max_tokens\":1}"))));
  ASSERT_TRUE(engine_.AwaitSubmitted(8));
  TokenEvent event;
  for (const TokenId token : openai::Bytes(text)) {
    event.prompt.push_back(openai::WithLogprob(token, -1));
  }
  event.tokens = {openai::WithLogprob('a', -1)};
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

TEST_F(GatewayMemoryTest, OneEventMayBeMegabytes) {
  Client client(port());
  ASSERT_TRUE(client.Send(ChatOf("\"stream\":true,\"logprobs\":true")));
  ASSERT_TRUE(engine_.AwaitSubmitted(1));
  TokenEvent event;
  for (int i = 0; i < 20000; ++i)
    event.tokens.push_back(openai::WithLogprob('x', -1));
  engine_.Tokens(0, std::move(event));
  engine_.Text(0, "abc");
  engine_.End(0, FinishReason::kStop);
  const std::string all = client.ReceiveUntil("[DONE]");
  EXPECT_GT(all.size(), size_t{1} << 20);
  EXPECT_THAT(all, EndsWith("[DONE]"));
}

TEST_F(GatewayMemoryTest, ABodyWhoseClientLeftCountsUntilItsTurnAndIsNotRead) {
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

TEST_F(GatewayMemoryTest, WhoStandsStillIsCutOffHoweverMuchIsLeft) {
  http::HttpLimits limits;
  limits.write_time = std::chrono::milliseconds(300);
  Restart(limits);
  for (const char* path : {"/large", "/burst"}) {
    const auto before = server_->stats().slow_readers.load();
    Client client(port(), /*receive_buffer=*/4096);
    ASSERT_TRUE(client.Send(Cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n")));
    EXPECT_TRUE(Await([&](const http::HttpServerStats& stats) {
      return stats.slow_readers == before + 1 && stats.backlog_bytes == 0;
    })) << path;
  }
}

TEST_F(GatewayMemoryTest, WhoReadsOnMayTakeLongerThanAWriteMay) {
  http::HttpLimits limits;
  limits.write_time = std::chrono::seconds(4);
  Restart(limits);
  const auto whole = std::chrono::duration<double>(1.5 * limits.write_time);
  for (const char* path : {"/large", "/burst"}) {
    // On a machine that stalls while it reads there is another try.
    Duration longest = limits.write_time;
    size_t received = 0;
    for (int i = 0;
         i < 20 && received < kLargeAnswer && longest > limits.write_time / 8;
         ++i) {
      Client client(port(), /*receive_buffer=*/256 << 10);
      ASSERT_TRUE(client.Send(Cat(
          "GET ", path, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")));
      std::tie(received, longest) = ReadSteadily(client, whole);
    }
    EXPECT_GE(received, kLargeAnswer) << path;
  }
}

TEST_F(GatewayMemoryTest, AllUnreadWholeAnswersAreBoundedToo) {
  http::HttpLimits limits;
  limits.all_backlog_bytes = 1 << 20;
  Restart(limits);
  const std::string request = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
  Client slow(port(), /*receive_buffer=*/4096);
  ASSERT_TRUE(slow.Send(request));
  ASSERT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.backlog_bytes > (1 << 20);
  }));
  Client other(port());
  ASSERT_TRUE(other.Send(request));
  const std::string refusal = other.ReceiveAnswer();
  EXPECT_THAT(refusal, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(refusal, HasSubstr("Retry-After: "));
  // Small ones are no burden, and who reads gets all of it.
  ASSERT_TRUE(other.Send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(other.ReceiveAnswer(), EndsWith("ok\n"));
  EXPECT_GT(slow.ReceiveAnswer().size(), kLargeAnswer);
  ASSERT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.backlog_bytes == 0;
  }));
  ASSERT_TRUE(other.Send(request));
  EXPECT_THAT(other.ReceiveAnswer(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(GatewayMemoryTest, WhenMemoryIsShortTheLargestAnswerIsCut) {
  http::HttpLimits limits;
  limits.all_backlog_bytes = kLargeAnswer * 5 / 4;
  Restart(limits);
  Client slow(port(), /*receive_buffer=*/4096);
  ASSERT_TRUE(slow.Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(Await([](const http::HttpServerStats& stats) {
    return stats.backlog_bytes > static_cast<long long>(kLargeAnswer / 2);
  }));
  Client reads(port());
  ASSERT_TRUE(reads.Send(
      "GET /burst HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_GT(reads.ReceiveAll().size(), kLargeAnswer);
  EXPECT_EQ(server_->stats().slow_readers, 1);
}

}  // namespace
}  // namespace sluice::gateway
