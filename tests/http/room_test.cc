// Connections that are many, silent or slow, and loops that are held.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <list>
#include <thread>

#include "tests/http/server_fixture.h"
#include "tests/testing/captured_stderr.h"
#include "tests/testing/no_descriptors.h"

namespace sluice::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kLivez[] = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";

class RoomTest : public HttpServerTest {
 protected:
  void RestartWith(int connections) {
    HttpLimits limits;
    limits.connections = connections;
    Restart(limits);
  }
};

TEST_F(RoomTest, AConnectionsFirstByteIsDueInTheHeadersTime) {
  HttpLimits limits;
  limits.header_time = std::chrono::milliseconds(100);
  Restart(limits);
  Client used(port());
  used.Send(kLivez);
  EXPECT_THAT(used.ReceiveAnswer(), EndsWith("ok\n"));
  Client silent(port());
  EXPECT_EQ(silent.ReceiveAll(), "")
      << "closed, long before ReceiveAll gives up";
  EXPECT_FALSE(used.Readable(std::chrono::milliseconds(300)))
      << "between requests there is more time";
  used.Send(kLivez);
  EXPECT_THAT(used.ReceiveAnswer(), EndsWith("ok\n"));
}

TEST_F(RoomTest, WhenAllAreTakenTheOneIdleLongestMakesRoom) {
  options_.threads = 1;  // notes that the first is idle before the second is
  RestartWith(2);
  Client first(port());
  Client second(port());
  for (Client* client : {&first, &second}) {
    client->Send(kLivez);
    EXPECT_THAT(client->ReceiveAnswer(), EndsWith("ok\n"));
  }
  Client third(port());
  third.Send(kLivez);
  EXPECT_THAT(third.ReceiveAnswer(), EndsWith("ok\n"));
  EXPECT_EQ(first.ReceiveAll(), "");
  second.Send(kLivez);
  EXPECT_THAT(second.ReceiveAnswer(), EndsWith("ok\n"));
  EXPECT_EQ(server_->stats().evictions, 1);
}

TEST_F(RoomTest, OneThatLingersAfterItsLastAnswerMakesRoom) {
  RestartWith(1);
  Client refused(port());
  refused.Send("GET /livez HTTP/1.1\r\n\r\n");  // no Host
  EXPECT_THAT(refused.ReceiveAnswer(), HasSubstr(" 400 "));
  Client next(port());
  next.Send(kLivez);
  EXPECT_THAT(next.ReceiveAnswer(), EndsWith("ok\n"));
}

TEST_F(RoomTest, SilentConnectionsKeepNobodyOut) {
  RestartWith(8);
  std::list<Client> silent;
  for (int i = 0; i < 40; ++i) {
    silent.emplace_back(port());
    Client probe(port());
    probe.Send(kLivez);
    ASSERT_THAT(probe.ReceiveAnswer(), EndsWith("ok\n")) << i;
  }
}

// Half requests from five addresses, again and again, each below its share.
TEST_F(RoomTest, HalfRequestsKeepNobodyOut) {
  HttpLimits limits;
  limits.connections = 40;
  limits.connections_per_client = 20;
  Restart(limits);
  Client stream(port());
  ASSERT_TRUE(stream.Send(HeldOf("\"stream\":true")));
  ASSERT_TRUE(held_.AwaitHeld(1));
  Client kept(port());
  for (const std::string half :
       {"GET /livez HTTP/1.1\r\nHost: x",
        "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", ""}) {
    std::list<Client> halves;
    for (uint32_t i = 0; i < 200; ++i) {
      Client& client = halves.emplace_back();
      client.Bind(INADDR_LOOPBACK + 1 + i % 5);
      client.Connect(port());
      client.Send(half);
      if (i % 20 != 19) continue;
      kept.Send(kLivez);
      EXPECT_THAT(kept.ReceiveAnswer(), EndsWith("ok\n")) << half << i;
      for (const uint32_t source : {INADDR_LOOPBACK, INADDR_LOOPBACK + 1}) {
        Client other;
        other.Bind(source);
        other.Connect(port());
        other.Send(PostOf("/count", "{}"));
        EXPECT_THAT(other.ReceiveAnswer(), HasSubstr("{\"count\":2")) << half;
      }
    }
  }
  held_.Text(0, "a");
  held_.End(0);
  EXPECT_THAT(stream.ReceiveUntil("[DONE]"), EndsWith("[DONE]"));
}

// Connections are those of the clients behind a trusted proxy.
TEST_F(RoomTest, OneClientBehindAProxyKeepsNoOtherOut) {
  auto proxies = TrustedProxies::Parse({"127.0.0.1"});
  ASSERT_TRUE(proxies.ok());
  options_.proxies = *std::move(proxies);
  RestartWith(8);
  const auto half = [](const char* client) {
    return Cat("POST /count HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: ", client,
               "\r\nContent-Length: 9\r\n\r\n{");
  };
  Client slow(port());
  slow.Send(half("2.2.2.2"));
  std::list<Client> halves;
  for (int i = 0; i < 30; ++i) {
    halves.emplace_back(port());
    halves.back().Send(half("1.1.1.1"));
    // One by one: until their heads are read all are the proxy's.
    ASSERT_TRUE(Await([i](const HttpServerStats& stats) {
      return stats.connections >= std::min(i + 2, 8) &&
             stats.evictions >= i - 6;
    }));
  }
  slow.Send("\"abcdef\"");
  EXPECT_THAT(slow.ReceiveAnswer(), HasSubstr("{\"count\":9"));
}

TEST_F(RoomTest, WithoutDescriptorsTheLogStaysShort) {
  std::list<Client> clients(3);
  const CapturedStderr captured;
  {
    const testing::NoDescriptors none;
    for (Client& client : clients) client.Connect(port());
    // A try every 100 ms.
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  }
  for (Client& client : clients) {
    client.Send(kLivez);
    EXPECT_THAT(client.ReceiveAnswer(), EndsWith("ok\n"));
  }
  const std::string log = captured.Text();
  size_t lines = 0;
  for (size_t at = 0; (at = log.find("accept failed", at)) != log.npos; ++at) {
    ++lines;
  }
  EXPECT_GE(lines, 1u);
  EXPECT_LE(lines, 3u) << log;
}

TEST_F(RoomTest, TwoHundredAndFiftySixStreamsOfOneAddressAllEnd) {
  HttpLimits limits;
  limits.connections_per_client = 8;
  Restart(limits);
  std::list<Client> clients;
  for (size_t i = 0; i < 256; ++i) {
    clients.emplace_back(port());
    ASSERT_TRUE(clients.back().Send(HeldOf("\"stream\":true")));
  }
  ASSERT_TRUE(held_.AwaitHeld(256));
  for (size_t i = 0; i < 256; ++i) {
    held_.Text(i, "a");
    held_.End(i);
  }
  for (Client& client : clients) {
    EXPECT_THAT(client.ReceiveUntil("[DONE]"), EndsWith("[DONE]"));
  }
}

TEST_F(RoomTest, DescriptorsAreKeptBackForStages) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // 256 are kept back: 4 connections are left.
  const rlimit low{260, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  RestartWith(100);
  std::list<Client> busy;
  for (size_t i = 0; i < 4; ++i) {
    busy.emplace_back(port());
    ASSERT_TRUE(busy.back().Send(HeldOf("")));
    ASSERT_TRUE(held_.AwaitHeld(i + 1));
  }
  Client late(port());
  late.Send(kLivez);
  EXPECT_THAT(late.ReceiveAnswer(), StartsWith("HTTP/1.1 503 "));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace sluice::http
