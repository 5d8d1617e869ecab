// Connections that are many, silent or slow, and loops that are held.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <ctime>
#include <list>

#include "tests/services/gateway/http_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kLivez[] = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";

class GatewayRoomTest : public GatewayHttpTest {
 protected:
  void RestartWith(int connections) {
    http::HttpLimits limits;
    limits.connections = connections;
    Restart(limits);
  }
};

TEST_F(GatewayRoomTest, AConnectionsFirstByteIsDueInTheHeadersTime) {
  http::HttpLimits limits;
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

TEST_F(GatewayRoomTest, WhenAllAreTakenTheOneIdleLongestMakesRoom) {
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

TEST_F(GatewayRoomTest, OneThatLingersAfterItsLastAnswerMakesRoom) {
  RestartWith(1);
  Client refused(port());
  refused.Send("GET /livez HTTP/1.1\r\n\r\n");  // no Host
  EXPECT_THAT(refused.ReceiveAnswer(), HasSubstr(" 400 "));
  Client next(port());
  next.Send(kLivez);
  EXPECT_THAT(next.ReceiveAnswer(), EndsWith("ok\n"));
}

TEST_F(GatewayRoomTest, SilentConnectionsKeepNobodyOut) {
  RestartWith(8);
  std::list<Client> silent;
  for (int i = 0; i < 40; ++i) {
    silent.emplace_back(port());
    Client probe(port());
    probe.Send(kLivez);
    ASSERT_THAT(probe.ReceiveAnswer(), EndsWith("ok\n")) << i;
  }
}

TEST_F(GatewayRoomTest, TwoHundredAndFiftySixStreamsOfOneAddressAllEnd) {
  http::HttpLimits limits;
  limits.connections_per_client = 8;
  Restart(limits);
  std::list<Client> clients;
  for (size_t i = 0; i < 256; ++i) {
    clients.emplace_back(port());
    ASSERT_TRUE(clients.back().Send(ChatOf("\"stream\":true")));
  }
  ASSERT_TRUE(engine_.AwaitSubmitted(256));
  for (size_t i = 0; i < 256; ++i) {
    engine_.Text(i, "a");
    engine_.End(i, FinishReason::kStop);
  }
  for (Client& client : clients) {
    EXPECT_THAT(client.ReceiveUntil("[DONE]"), EndsWith("[DONE]"));
  }
}

TEST_F(GatewayRoomTest, DescriptorsAreKeptBackForStages) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // 256 are kept back: 4 connections are left.
  const rlimit low{260, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  RestartWith(100);
  std::list<Client> busy;
  for (size_t i = 0; i < 4; ++i) {
    busy.emplace_back(port());
    ASSERT_TRUE(busy.back().Send(ChatOf("")));
    ASSERT_TRUE(engine_.AwaitSubmitted(i + 1));
  }
  Client late(port());
  late.Send(kLivez);
  EXPECT_THAT(late.ReceiveAnswer(), StartsWith("HTTP/1.1 503 "));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
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

TEST_F(GatewayRoomTest, AnEventThatHoldsItsLoopIsMeasured) {
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
    client.Send(kLivez);
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

}  // namespace
}  // namespace sluice::gateway
