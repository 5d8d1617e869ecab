#include "services/cli/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace sluice::cli {
namespace {

// Answers one connection with fixed bytes, whatever it is sent.
class OneAnswer {
 public:
  explicit OneAnswer(std::string bytes)
      : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    listen(listener_, 1);
    socklen_t length = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      const int peer = accept(listener_, nullptr, nullptr);
      char in[4096];
      if (read(peer, in, sizeof(in)) > 0) {
        for (const char c : bytes) {
          if (write(peer, &c, 1) != 1) break;
        }
      }
      close(peer);
    });
  }
  ~OneAnswer() {
    thread_.join();
    close(listener_);
  }
  BaseUrl url() const { return {"127.0.0.1", std::to_string(port_)}; }

 private:
  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

TEST(HttpClientTest, UrlsAreHostAndPort) {
  const auto base = BaseUrl::Parse("http://host:81/x");
  ASSERT_TRUE(base.ok());
  EXPECT_EQ(base->host, "host");
  EXPECT_EQ(base->port, "81");
  EXPECT_EQ(BaseUrl::Parse("http://host")->port, "80");
  EXPECT_FALSE(BaseUrl::Parse("host:80").ok());
  EXPECT_FALSE(BaseUrl::Parse("http://").ok());
}

TEST(HttpClientTest, EventsOfAChunkedAnswerAreGivenOneByOne) {
  const OneAnswer server(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "8\r\ndata: a\n\r\n9\r\n\ndata: b\n\r\n1\r\n\n\r\n0\r\n\r\n");
  std::string events;
  const Status done =
      HttpPostEvents(server.url(), "/", "{}", [&](std::string_view event) {
        events += std::string(event) + ";";
        return OkStatus();
      });
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(events, "a;b;");
}

TEST(HttpClientTest, ARefusalIsToldInTheServersWords) {
  const OneAnswer server(
      "HTTP/1.1 404 Not Found\r\nContent-Length: 39\r\n\r\n"
      R"({"error":{"message":"no such model x"}})");
  const Status done = HttpPostEvents(
      server.url(), "/", "{}", [](std::string_view) { return OkStatus(); });
  EXPECT_EQ(Message(done), "404: no such model x");
}

TEST(HttpClientTest, AStreamThatBreaksIsAnError) {
  const OneAnswer server(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata");
  const Status done = HttpPostEvents(
      server.url(), "/", "{}", [](std::string_view) { return OkStatus(); });
  EXPECT_EQ(done.code(), StatusCode::kUnavailable);
}

TEST(HttpClientTest, NobodyListeningIsUnavailable) {
  EXPECT_EQ(HttpGet({"127.0.0.1", "1"}, "/").status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::cli
