// What the server holds in memory: answers that clients have not read.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "tests/http/server_fixture.h"

namespace sluice::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MemoryTest : public HttpServerTest {
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

TEST_F(MemoryTest, WhoStandsStillIsCutOffHoweverMuchIsLeft) {
  HttpLimits limits;
  limits.write_time = std::chrono::milliseconds(300);
  Restart(limits);
  for (const char* path : {"/large", "/burst"}) {
    const auto before = server_->stats().slow_readers.load();
    Client client(port(), /*receive_buffer=*/4096);
    ASSERT_TRUE(client.Send(Cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n")));
    EXPECT_TRUE(Await([&](const HttpServerStats& stats) {
      return stats.slow_readers == before + 1 && stats.backlog_bytes == 0;
    })) << path;
  }
}

TEST_F(MemoryTest, WhoReadsOnMayTakeLongerThanAWriteMay) {
  HttpLimits limits;
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

TEST_F(MemoryTest, AllUnreadWholeAnswersAreBoundedToo) {
  HttpLimits limits;
  limits.all_backlog_bytes = 1 << 20;
  Restart(limits);
  const std::string request = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
  Client slow(port(), /*receive_buffer=*/4096);
  ASSERT_TRUE(slow.Send(request));
  ASSERT_TRUE(Await([](const HttpServerStats& stats) {
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
  ASSERT_TRUE(Await(
      [](const HttpServerStats& stats) { return stats.backlog_bytes == 0; }));
  ASSERT_TRUE(other.Send(request));
  EXPECT_THAT(other.ReceiveAnswer(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MemoryTest, WhenMemoryIsShortTheLargestAnswerIsCut) {
  HttpLimits limits;
  limits.all_backlog_bytes = kLargeAnswer * 5 / 4;
  Restart(limits);
  Client slow(port(), /*receive_buffer=*/4096);
  ASSERT_TRUE(slow.Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(Await([](const HttpServerStats& stats) {
    return stats.backlog_bytes > static_cast<long long>(kLargeAnswer / 2);
  }));
  Client reads(port());
  ASSERT_TRUE(reads.Send(
      "GET /burst HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_GT(reads.ReceiveAll().size(), kLargeAnswer);
  EXPECT_EQ(server_->stats().slow_readers, 1);
}

}  // namespace
}  // namespace sluice::http
