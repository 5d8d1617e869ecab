#include "common/metrics/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <new>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "tests/testing/http_exchange.h"
#include "tests/testing/no_descriptors.h"

namespace sluice::metrics {
namespace {

using sluice::testing::Connect;
using sluice::testing::ConnectTo;
using sluice::testing::Exchange;
using sluice::testing::Get;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class MetricsServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registry_.AddGauge("answer", "help").Set(42);
    MetricsServerOptions options;
    options.registry = &registry_;
    options.readiness = [this] { return readiness_; };
    options.pages["/more"] = [] { return std::string("{\"more\":1}"); };
    auto server = MetricsServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  Registry registry_;
  Readiness readiness_{false, "{\"why\":\"loading\"}"};
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ServesTheRegistryAsText) {
  const std::string answer = Get(server_->port(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("answer 42\n"));
}

TEST_F(MetricsServerTest, FurtherPagesAreServedAsJson) {
  const std::string answer = Get(server_->port(), "/more?x=1");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("application/json"));
  EXPECT_THAT(answer, HasSubstr("{\"more\":1}"));
}

TEST_F(MetricsServerTest, LivenessDoesNotWaitForReadiness) {
  EXPECT_THAT(Get(server_->port(), "/livez"), StartsWith("HTTP/1.1 200 OK"));
  const std::string answer = Get(server_->port(), "/readyz");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("{\"why\":\"loading\"}"));
}

TEST_F(MetricsServerTest, HeadGivesNoBody) {
  const std::string answer =
      Exchange(server_->port(), "HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(answer, Not(HasSubstr("answer 42")));
}

TEST_F(MetricsServerTest, RefusesOtherPathsAndMethods) {
  EXPECT_THAT(Get(server_->port(), "/x"), StartsWith("HTTP/1.1 404 "));
  const std::string answer =
      Exchange(server_->port(), "POST /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST_F(MetricsServerTest, RefusesAnEndlessHeader) {
  const std::string answer =
      Exchange(server_->port(), std::string(9 << 10, 'a'));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 431 "));
}

TEST_F(MetricsServerTest, ASilentClientDelaysNobody) {
  const int silent = Connect(server_->port());
  EXPECT_THAT(Get(server_->port(), "/livez"), StartsWith("HTTP/1.1 200 OK"));
  ::close(silent);
}

TEST_F(MetricsServerTest, SilentClientsWithoutEndKeepNobodyOut) {
  std::vector<int> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(Connect(server_->port()));
    if (i % 10 != 0) continue;
    ASSERT_THAT(Get(server_->port(), "/livez"), StartsWith("HTTP/1.1 200 OK"))
        << i;
  }
  pollfd first{silent.front(), POLLIN, 0};
  EXPECT_EQ(::poll(&first, 1, 2000), 1) << "it made room for others";
  for (const int fd : silent) ::close(fd);
}

TEST_F(MetricsServerTest, WithoutDescriptorsItWaitsAndDoesNotSpin) {
  const int waiting = ::socket(AF_INET, SOCK_STREAM, 0);
  const std::string request = "GET /livez HTTP/1.1\r\n\r\n";
  pollfd answer{waiting, POLLIN, 0};
  {
    const sluice::testing::NoDescriptors none;
    ConnectTo(waiting, server_->port());
    ::send(waiting, request.data(), request.size(), MSG_NOSIGNAL);
    const double before = sluice::testing::ProcessorSeconds();
    EXPECT_EQ(::poll(&answer, 1, 500), 0) << "nobody can accept it";
    EXPECT_LT(sluice::testing::ProcessorSeconds() - before, 0.2);
  }
  EXPECT_EQ(::poll(&answer, 1, 10000), 1) << "accepted once there are some";
  ::close(waiting);
}

TEST(MetricsServerStartTest, AnExceptionEndsOneAnswerAlone) {
  MetricsServerOptions options;
  options.readiness = []() -> Readiness { throw std::bad_alloc(); };
  options.pages["/odd"] = []() -> std::string { throw 5; };
  const auto server = MetricsServer::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  for (const char* path : {"/readyz", "/odd"}) {
    EXPECT_EQ(Get((*server)->port(), path), "");
    EXPECT_THAT(Get((*server)->port(), "/livez"),
                StartsWith("HTTP/1.1 200 OK"));
  }
}

TEST(MetricsServerStartTest, RefusesAddressesItCannotUse) {
  for (const char* listen : {"127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000",
                             "no-such-host:1", "[::1:1"}) {
    MetricsServerOptions options;
    options.listen = listen;
    const auto server = MetricsServer::Start(std::move(options));
    ASSERT_FALSE(server.ok()) << listen;
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument) << listen;
  }
}

TEST(MetricsServerStartTest, SaysThatAnAddressIsTaken) {
  auto first = MetricsServer::Start({});
  ASSERT_TRUE(first.ok()) << first.status();
  MetricsServerOptions options;
  options.listen = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = MetricsServer::Start(std::move(options));
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::metrics
