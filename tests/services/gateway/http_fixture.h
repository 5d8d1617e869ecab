#ifndef SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/concurrency/turn_queue.h"
#include "common/http/error_answer.h"
#include "common/http/http_server.h"
#include "common/http/router.h"
#include "services/gateway/access_log.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {

// A raw client socket; every wait is bounded.
class Client {
 public:
  Client() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval wait{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
  }
  explicit Client(int port, int receive_buffer = 0) : Client() {
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
                   sizeof(receive_buffer));
    }
    Connect(port);
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Connect(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
  }

  // Whether something comes within `wait`.
  bool Readable(std::chrono::milliseconds wait) const {
    pollfd one{fd_, POLLIN, 0};
    return ::poll(&one, 1, static_cast<int>(wait.count())) == 1;
  }

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  // A reset instead of an orderly end.
  void Reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }

  // Sends no more, reads on.
  void HalfClose() { ::shutdown(fd_, SHUT_WR); }

  // False if the server took no more.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // One recv; empty at the end.
  std::string Receive() {
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
    return n <= 0 ? "" : std::string(buffer, static_cast<size_t>(n));
  }

  // Until `end` was seen, or the connection ended.
  std::string ReceiveUntil(std::string_view end) {
    while (received_.find(end) == std::string::npos) {
      const std::string more = Receive();
      if (more.empty()) return std::exchange(received_, "");
      received_ += more;
    }
    const size_t cut = received_.find(end) + end.size();
    std::string out = received_.substr(0, cut);
    received_.erase(0, cut);
    return out;
  }

  // One answer with a Content-Length.
  std::string ReceiveAnswer() {
    std::string head = ReceiveUntil("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    const size_t length = std::stoul(head.substr(at + 16));
    while (received_.size() < length) {
      const std::string more = Receive();
      if (more.empty()) break;
      received_ += more;
    }
    std::string answer = head + received_.substr(0, length);
    received_.erase(0, length);
    return answer;
  }

  int fd() const { return fd_; }

  std::string ReceiveAll() { return ReceiveUntil(std::string(1, '\0') + "no"); }

 private:
  int fd_;
  std::string received_;
};

inline std::string PostOf(std::string_view path, std::string_view body,
                          std::string_view headers = "") {
  return Cat("POST ", path,
             " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n",
             headers, "\r\n", body);
}

inline std::string ChatOf(std::string_view fields) {
  return PostOf("/v1/chat/completions",
                Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
                    fields.empty() ? "" : ",", fields, "}"));
}

// The server over real sockets, with the scripted generator behind it.
class GatewayHttpTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }
  // A client that asks for a stream and reads nothing of it, which is more
  // than the sockets' buffers hold: it is cut off, and counted.
  void ExpectASlowReaderIsCutOff() {
    Client client(port(), /*receive_buffer=*/4096);
    ASSERT_TRUE(client.Send(ChatOf("\"stream\":true,\"ignore_eos\":true")));
    ASSERT_TRUE(generator_.AwaitSubmitted(1));
    const std::string text(20000, 'x');
    for (int i = 0; i < 20 && server_->stats().slow_readers == 0; ++i) {
      generator_.Text(0, text);
    }
    EXPECT_TRUE(generator_.AwaitCancelled(1));
    EXPECT_EQ(server_->stats().slow_readers, 1);
    EXPECT_EQ(server_->stats().disconnects, 1);
  }
  // Another server, with other limits, instead of the one that runs.
  void Restart(const HttpLimits& limits) {
    server_.reset();
    Start(limits);
  }
  void TearDown() override {
    // As GatewayServer::Stop: whoever makes tokens ends first.
    for (size_t i = 0; i < generator_.submitted(); ++i) {
      generator_.End(i, FinishReason::kCancelled);
    }
    server_.reset();
  }

  void Start(const HttpLimits& limits) {
    HandlerContext context{model_, generator_, metrics_, work_,
                           [this] { return readiness_; }};
    context.keys_asked = options_.screen != nullptr;
    context.rules = rules_;
    Router router;
    AddChatHandler(router, context);
    AddCompletionsHandler(router, context);
    AddTokenizeHandlers(router, context);
    AddHealthHandlers(router, context);
    AddModelHandlers(router, context);
    router.Add("GET", "/large", [](std::shared_ptr<Exchange> exchange) {
      HttpResponse response;
      response.body.assign(kLargeAnswer, 'x');
      exchange->Send(std::move(response));
    });
    router.Add("GET", "/burst", [](std::shared_ptr<Exchange> exchange) {
      exchange->BeginStream({});
      const std::string chunk(size_t{16} << 10, 'x');
      for (size_t sent = 0; sent < kLargeAnswer; sent += chunk.size()) {
        exchange->SendChunk(chunk);
      }
      exchange->EndStream();
    });
    if (more_routes_) more_routes_(router);
    HttpServerOptions options = options_;
    options.listen = "127.0.0.1:0";
    options.limits = limits;
    options.handler = [router](std::shared_ptr<Exchange> exchange) {
      router.Route(std::move(exchange));
    };
    options.observer = [this](const ExchangeSummary& summary) {
      metrics_.OnExchange(summary);
      if (access_log_) LogAccess(summary);
    };
    options.error_response = TransportError;
    auto server = HttpServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  int port() const { return server_->port(); }
  // Waits until `condition` holds of the server's figures; false after a
  // minute.
  template <typename Condition>
  bool Await(Condition condition) const {
    const TimePoint end = Clock::now() + std::chrono::minutes(1);
    while (!condition(server_->stats())) {
      if (Clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  // What /large answers with, and /burst in chunks that are all sent at once:
  // more than the sockets' buffers hold.
  static constexpr size_t kLargeAnswer = size_t{16} << 20;

  const ServedModel model_ = FakeModel(1 << 20);
  FakeGenerator generator_;
  GatewayMetrics metrics_{{.model_name = "fake", .key_names = true}};
  // Of the next Start: keys, CORS, text threads; what /readyz says.
  HttpServerOptions options_;
  std::function<void(Router&)> more_routes_;
  bool access_log_ = false;
  RequestRules rules_;
  TurnQueue* work_ = nullptr;
  GatewayReadiness readiness_{true};
  std::unique_ptr<HttpServer> server_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_HTTP_FIXTURE_H_
