// A server that finds no memory for its connections stays, and serves again
// when there is some: each of the server's allocations fails once, alone or
// with all behind it.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/exception_counts.h"
#include "common/http/probe_server.h"
#include "tests/testing/failing_calls.h"
#include "tests/testing/http_exchange.h"

namespace sluice::http {
namespace {

using sluice::testing::Connect;
using sluice::testing::FailingAllocation;
using sluice::testing::Get;

constexpr char kWhole[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr char kHalf[] = "GET /metrics HT";

// What a client does allocates nothing: all that fails is the server's.
class ProbeMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ProbeOptions options;
    options.pages["/metrics"] = [] {
      return HttpResponse{200, "text/plain", {}, std::string(3000, 'x')};
    };
    auto server = StartProbeServer(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    Get(port(), "/metrics");
  }

  int port() const { return server_->port(); }

  static void Send(int fd, const char* request) {
    ::send(fd, request, std::strlen(request), MSG_NOSIGNAL);
  }
  // The status of the whole answer; 0 without one.
  static int StatusOfAnswer(int fd) {
    std::array<char, 8192> answer;
    size_t size = 0;
    pollfd one{fd, POLLIN, 0};
    while (size < answer.size() && ::poll(&one, 1, 10000) == 1) {
      const ssize_t n =
          ::recv(fd, answer.data() + size, answer.size() - size, 0);
      if (n <= 0) break;
      size += static_cast<size_t>(n);
    }
    const std::string_view text(answer.data(), size);
    if (text.starts_with("HTTP/1.1 200 ")) return 200;
    return text.starts_with("HTTP/1.1 503 ") ? 503 : 0;
  }
  int Ask() const {
    const int fd = Connect(port());
    Send(fd, kWhole);
    const int status = StatusOfAnswer(fd);
    ::close(fd);
    return status;
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(ProbeMemoryTest, EachAllocationOfAConnectionMayFail) {
  uint64_t count = 0;
  {
    const FailingAllocation none(0, 1);
    ASSERT_EQ(Ask(), 200);
    count = none.count();
  }
  ASSERT_GT(count, 5u);
  int refused = 0;
  for (uint64_t n = 1; n <= count; ++n) {
    {
      const FailingAllocation failing(n, 1);
      const int status = Ask();
      refused += status == 503 ? 1 : 0;
      // An allocation behind the answer's begin cuts it.
      EXPECT_TRUE(status == 200 || status == 503 || status == 0) << n;
    }
    ASSERT_EQ(Ask(), 200) << "behind a failure of allocation " << n;
  }
  EXPECT_GT(refused, 0);
  std::printf("%lu allocations of a connection, %d answered with 503\n",
              static_cast<unsigned long>(count), refused);
}

TEST_F(ProbeMemoryTest, ConnectionsWithoutMemoryAreRefused) {
  int refused = 0;
  {
    // As much as a connection takes; Asio's few bytes for an accept are there.
    const FailingAllocation failing(1, 512, /*lasts=*/true);
    for (int i = 0; i < 600; ++i) refused += Ask() == 503 ? 1 : 0;
  }
  EXPECT_EQ(refused, 600);
  EXPECT_EQ(Ask(), 200);
}

TEST_F(ProbeMemoryTest, HalfRequestsWithoutMemoryKeepNobodyOut) {
  constexpr int kConnections = 600;
  for (const uint64_t least : {1, 64, 256, 1024, 4096}) {
    std::vector<int> open;
    open.reserve(kConnections);
    {
      const FailingAllocation failing(100, least, /*lasts=*/true);
      for (int i = 0; i < kConnections; ++i) {
        open.push_back(Connect(port()));
        Send(open.back(), kHalf);
      }
    }
    for (const int fd : open) ::close(fd);
    EXPECT_EQ(Ask(), 200) << least;
  }
  EXPECT_EQ(server_->stats().exchanges, 0);
}

}  // namespace
}  // namespace sluice::http
