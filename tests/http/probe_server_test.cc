#include "common/http/probe_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <new>
#include <string>
#include <vector>

#include "tests/testing/http_exchange.h"
#include "tests/testing/no_descriptors.h"

namespace sluice::http {
namespace {

using sluice::testing::Connect;
using sluice::testing::ConnectTo;
using sluice::testing::Exchange;
using sluice::testing::Get;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ProbeServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ProbeOptions options;
    options.pages["/metrics"] = [] {
      return HttpResponse{200, "text/plain; version=0.0.4", {}, "answer 42\n"};
    };
    options.readiness = [this] { return readiness_; };
    options.pages["/more"] = [] {
      return HttpResponse{200, "application/json", {}, "{\"more\":1}"};
    };
    auto server = StartProbeServer(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  Readiness readiness_{false, "{\"why\":\"loading\"}"};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ProbeServerTest, ServesItsPagesAsTheyAre) {
  const std::string answer = Get(server_->port(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("answer 42\n"));
}

TEST_F(ProbeServerTest, FurtherPagesAreServedAsJson) {
  const std::string answer = Get(server_->port(), "/more?x=1");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("application/json"));
  EXPECT_THAT(answer, HasSubstr("{\"more\":1}"));
}

TEST_F(ProbeServerTest, LivenessDoesNotWaitForReadiness) {
  EXPECT_THAT(Get(server_->port(), "/livez"), StartsWith("HTTP/1.1 200 OK"));
  const std::string answer = Get(server_->port(), "/readyz");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("{\"why\":\"loading\"}"));
}

TEST_F(ProbeServerTest, HeadGivesNoBody) {
  const std::string answer =
      Exchange(server_->port(), "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(answer, Not(HasSubstr("answer 42")));
}

TEST_F(ProbeServerTest, RefusesOtherPathsAndMethods) {
  EXPECT_THAT(Get(server_->port(), "/x"), StartsWith("HTTP/1.1 404 "));
  const std::string answer =
      Exchange(server_->port(), "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST_F(ProbeServerTest, RefusesAnEndlessHeader) {
  const std::string answer =
      Exchange(server_->port(), std::string(9 << 10, 'a'));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 431 "));
}

TEST_F(ProbeServerTest, ASilentClientDelaysNobody) {
  const int silent = Connect(server_->port());
  EXPECT_THAT(Get(server_->port(), "/livez"), StartsWith("HTTP/1.1 200 OK"));
  ::close(silent);
}

TEST_F(ProbeServerTest, SilentClientsWithoutEndKeepNobodyOut) {
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

TEST_F(ProbeServerTest, WithoutDescriptorsItWaitsAndDoesNotSpin) {
  const int waiting = ::socket(AF_INET, SOCK_STREAM, 0);
  const std::string request = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
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

TEST(ProbeServerStartTest, AnExceptionEndsOneAnswerAlone) {
  ProbeOptions options;
  options.readiness = []() -> Readiness { throw std::bad_alloc(); };
  options.pages["/odd"] = []() -> HttpResponse { throw 5; };
  const auto server = StartProbeServer(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  for (const char* path : {"/readyz", "/odd"}) {
    EXPECT_THAT(Get((*server)->port(), path), StartsWith("HTTP/1.1 50"));
    EXPECT_THAT(Get((*server)->port(), "/livez"),
                StartsWith("HTTP/1.1 200 OK"));
  }
}

TEST(ProbeServerStartTest, RefusesAddressesItCannotUse) {
  for (const char* listen : {"127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000",
                             "no-such-host:1", "[::1:1"}) {
    ProbeOptions options;
    options.listen = listen;
    const auto server = StartProbeServer(std::move(options));
    ASSERT_FALSE(server.ok()) << listen;
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument) << listen;
  }
}

TEST(ProbeServerStartTest, SaysThatAnAddressIsTaken) {
  auto first = StartProbeServer({});
  ASSERT_TRUE(first.ok()) << first.status();
  ProbeOptions options;
  options.listen = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = StartProbeServer(std::move(options));
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::http
