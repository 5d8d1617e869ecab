#ifndef SLUICE_TESTS_TESTING_HTTP_EXCHANGE_H_
#define SLUICE_TESTS_TESTING_HTTP_EXCHANGE_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace sluice::testing {

// Connects a socket to a port of this machine; fails the test if nobody
// listens there.
inline void ConnectTo(int fd, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(
      ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

inline int Connect(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  ConnectTo(fd, port);
  return fd;
}

// Sends the bytes of a request; all bytes of the answer, until the other side
// closes.
inline std::string Exchange(int port, const std::string& request) {
  const int fd = Connect(port);
  EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  ssize_t n;
  while ((n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return answer;
}

inline std::string Get(int port, const std::string& path) {
  return Exchange(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_HTTP_EXCHANGE_H_
