#ifndef SLUICE_TESTS_HTTP_ONE_ANSWER_H_
#define SLUICE_TESTS_HTTP_ONE_ANSWER_H_

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "common/http/http_client.h"

namespace sluice::http::testing {

// An answer with its length, as OneAnswer sends it.
inline std::string HttpAnswer(const std::string& status,
                              const std::string& body) {
  return "HTTP/1.1 " + status +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

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
    thread_ = std::thread([this, bytes = std::move(bytes)] { Serve(bytes); });
  }
  ~OneAnswer() {
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  BaseUrl url() const { return {"127.0.0.1", std::to_string(port_), ""}; }

  // What was sent, once the connection has ended.
  const std::string& Request() {
    if (thread_.joinable()) thread_.join();
    return request_;
  }

 private:
  void Serve(const std::string& bytes) {
    const int peer = accept(listener_, nullptr, nullptr);
    char in[4096];
    const auto receive = [&] {
      const ssize_t got = read(peer, in, sizeof(in));
      if (got > 0) request_.append(in, static_cast<size_t>(got));
      return got > 0;
    };
    while (request_.find("\r\n\r\n") == std::string::npos && receive()) {
    }
    for (const char c : bytes) {
      if (write(peer, &c, 1) != 1) break;
    }
    shutdown(peer, SHUT_WR);
    while (receive()) {
    }
    close(peer);
  }

  const int listener_;
  int port_ = 0;
  std::string request_;  // of the thread until it is joined
  std::thread thread_;
};

}  // namespace sluice::http::testing

#endif  // SLUICE_TESTS_HTTP_ONE_ANSWER_H_
