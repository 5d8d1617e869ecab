#ifndef SLUICE_TESTS_HTTP_RAW_CLIENT_H_
#define SLUICE_TESTS_HTTP_RAW_CLIENT_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/cat.h"

namespace sluice::http {

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

  // From a loopback address: 127.0.0.1 is 0x7f000001.
  void Bind(uint32_t source) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(source);
    EXPECT_EQ(
        ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

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

}  // namespace sluice::http

#endif  // SLUICE_TESTS_HTTP_RAW_CLIENT_H_
