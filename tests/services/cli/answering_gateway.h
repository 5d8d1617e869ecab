#ifndef SLUICE_TESTS_SERVICES_CLI_ANSWERING_GATEWAY_H_
#define SLUICE_TESTS_SERVICES_CLI_ANSWERING_GATEWAY_H_

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "common/base/cat.h"
#include "tests/http/one_answer.h"

namespace sluice::cli {

// Answers each connection with the same bytes; without bytes it accepts
// connections and never answers, as a gateway that is stopped.
class AnsweringGateway {
 public:
  explicit AnsweringGateway(std::string bytes)
      : bytes_(std::move(bytes)),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        ended_(::eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), length);
    ::listen(listener_, 16);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    if (!bytes_.empty()) thread_ = std::thread([this] { Serve(); });
  }
  ~AnsweringGateway() {
    const uint64_t one = 1;
    if (::write(ended_, &one, sizeof(one)) == sizeof(one) &&
        thread_.joinable()) {
      thread_.join();
    }
    ::close(ended_);
    ::close(listener_);
  }
  AnsweringGateway(const AnsweringGateway&) = delete;
  AnsweringGateway& operator=(const AnsweringGateway&) = delete;

  std::string url() const { return Cat("http://127.0.0.1:", port_); }

 private:
  void Serve() const {
    for (;;) {
      pollfd waits[] = {{listener_, POLLIN, 0}, {ended_, POLLIN, 0}};
      ::poll(waits, 2, -1);
      if (waits[1].revents != 0) return;
      if (waits[0].revents != 0) Answer(::accept(listener_, nullptr, nullptr));
    }
  }

  void Answer(int peer) const {
    std::string request;
    char in[4096];
    ssize_t got = 0;
    while (request.find("\r\n\r\n") == std::string::npos &&
           (got = ::read(peer, in, sizeof(in))) > 0) {
      request.append(in, static_cast<size_t>(got));
    }
    if (::write(peer, bytes_.data(), bytes_.size()) > 0) {
      ::shutdown(peer, SHUT_WR);
    }
    while (::read(peer, in, sizeof(in)) > 0) {
    }
    ::close(peer);
  }

  const std::string bytes_;
  const int listener_;
  const int ended_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace sluice::cli

#endif  // SLUICE_TESTS_SERVICES_CLI_ANSWERING_GATEWAY_H_
