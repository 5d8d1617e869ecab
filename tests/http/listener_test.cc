// The end of a listener.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "common/concurrency/named_thread.h"
#include "tests/http/server_fixture.h"

namespace sluice::http {
namespace {

// Connects and asks again and again until it is refused.
class LateClient {
 public:
  explicit LateClient(int port)
      : thread_("late-client", [this, port] {
          while (Ask(port)) {
          }
        }) {}
  void Join() { thread_.Join(); }
  std::atomic<int> answered{0}, cut{0};

 private:
  // False: it is refused.
  bool Ask(int port) {
    const int client = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool connected =
        ::connect(client, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    if (connected) {
      constexpr std::string_view kRequest =
          "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
      char answer[64];
      ::send(client, kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
      ++(::recv(client, answer, sizeof(answer), 0) > 0 ? answered : cut);
    }
    ::close(client);
    return connected;
  }

  NamedThread thread_;
};

TEST_F(HttpServerTest, WhoIsConnectedWhenTheListenerClosesIsAnswered) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<LateClient>> clients;
    for (int i = 0; i < 3; ++i) {
      clients.push_back(std::make_unique<LateClient>(port()));
    }
    ASSERT_TRUE(AwaitThat([&] { return clients[0]->answered > 20; }));
    server_->BeginDrain();
    server_->CloseListener(Clock::now() + std::chrono::seconds(10));
    server_->Stop();
    for (const auto& client : clients) {
      client->Join();
      EXPECT_EQ(client->cut, 0) << "of " << client->answered;
    }
    Restart({});
  }
}

}  // namespace
}  // namespace sluice::http
