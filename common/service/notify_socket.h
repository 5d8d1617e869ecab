#ifndef SLUICE_COMMON_SERVICE_NOTIFY_SOCKET_H_
#define SLUICE_COMMON_SERVICE_NOTIFY_SOCKET_H_

#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"

namespace sluice {

// Tells systemd how this process fares, by the socket that $NOTIFY_SOCKET names
// (sd_notify(3)). Without that variable every call does nothing. A manager that
// cannot be reached is a warning in the log, once. For one thread.
class NotifySocket {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  static NotifySocket FromEnvironment();

  // `address`: a path, or an abstract name that begins with '@'; empty: no
  // manager. `watchdog`: after this silence the manager ends the process.
  NotifySocket(std::string address, std::optional<Duration> watchdog)
      : address_(std::move(address)), watchdog_(watchdog) {}

  void Ready() { Send("READY=1"); }
  void StillAlive();  // does nothing without a watchdog
  void Stopping() { Send("STOPPING=1"); }

  // Returns the pause between two calls of StillAlive, half of what the manager
  // waits; nothing without a watchdog.
  std::optional<Duration> ping_interval() const;

 private:
  void Send(const std::string& state);

  std::string address_;
  std::optional<Duration> watchdog_;
  bool warned_ = false;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_NOTIFY_SOCKET_H_
