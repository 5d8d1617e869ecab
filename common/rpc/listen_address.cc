#include "common/rpc/listen_address.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/transport_options.h"

namespace sluice::rpc {

ListenLock::~ListenLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ListenLock::ListenLock(ListenLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

ListenLock& ListenLock::operator=(ListenLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

StatusOr<ListenLock> ListenLock::Take(const std::string& address) {
  const std::string path = SocketPath(address);
  if (path.empty()) return ListenLock();
  const std::string name = path + ".lock";
  ListenLock lock(
      ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.descriptor_ < 0) {
    return Unavailable("cannot listen on ", address, ": ", name, ": ",
                       std::strerror(errno));
  }
  if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    return Unavailable("cannot listen on ", address,
                       ": the address is in use: ", name, " is locked");
  }
  return lock;
}

void BindPrivately(const std::function<void()>& bind) {
  // The mask belongs to the whole process.
  static Mutex mutex;
  MutexLock lock(mutex);
  const mode_t before = ::umask(0177);
  bind();
  ::umask(before);
}

}  // namespace sluice::rpc
