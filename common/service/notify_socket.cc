#include "common/service/notify_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/base/log.h"

namespace sluice {
namespace {

std::string_view NotifyVariable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the positive number that `text` is, whole; else 0.
int64_t PositiveNumber(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == end;
  return whole && value > 0 ? value : 0;
}

}  // namespace

NotifySocket NotifySocket::FromEnvironment() {
  std::optional<Duration> watchdog;
  const std::string_view pid = NotifyVariable("WATCHDOG_PID");
  const int64_t micros = PositiveNumber(NotifyVariable("WATCHDOG_USEC"));
  if (micros > 0 && (pid.empty() || PositiveNumber(pid) == getpid())) {
    watchdog = std::chrono::microseconds(micros);
  }
  return {std::string(NotifyVariable("NOTIFY_SOCKET")), watchdog};
}

void NotifySocket::StillAlive() {
  if (watchdog_) Send("WATCHDOG=1");
}

std::optional<Duration> NotifySocket::ping_interval() const {
  if (!watchdog_ || address_.empty()) return std::nullopt;
  return *watchdog_ / 2;
}

void NotifySocket::Send(const std::string& state) {
  if (address_.empty()) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  ssize_t sent = -1;
  if (address_.size() >= sizeof(to.sun_path)) {
    errno = ENAMETOOLONG;
  } else {
    std::memcpy(to.sun_path, address_.data(), address_.size());
    if (address_[0] == '@') to.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                             address_.size());
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    // The main thread waits for no manager that does not read.
    sent = sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                  reinterpret_cast<const sockaddr*>(&to), size);
    const int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
  }
  if (sent >= 0 || warned_) return;
  warned_ = true;
  LogWarning("NOTIFY_SOCKET ", address_, ": ", state,
             " cannot be sent: ", std::strerror(errno));
}

}  // namespace sluice
