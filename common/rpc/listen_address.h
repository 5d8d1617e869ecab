#ifndef SLUICE_COMMON_RPC_LISTEN_ADDRESS_H_
#define SLUICE_COMMON_RPC_LISTEN_ADDRESS_H_

#include <functional>
#include <string>

#include "common/base/status.h"

namespace sluice::rpc {

// The right to listen on a socket file: a lock on PATH.lock beside it, which
// the system frees with the process. gRPC removes a file at PATH even if
// another process listens on it. A value; empty for "host:port".
class ListenLock {
 public:
  ListenLock() = default;
  ~ListenLock();
  ListenLock(ListenLock&& other) noexcept;
  ListenLock& operator=(ListenLock&& other) noexcept;

  // UNAVAILABLE if another process, or another server of this one, listens
  // on `address`, or if the lock's file cannot be made.
  static StatusOr<ListenLock> Take(const std::string& address);

 private:
  explicit ListenLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

// Runs `bind`, so that its socket files have mode 0600 from the start.
void BindPrivately(const std::function<void()>& bind);

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_LISTEN_ADDRESS_H_
