#include "common/weights/draft_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "common/base/cat.h"
#include "common/base/log.h"

namespace sluice::weights {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(20);  // at a lock

// True if `fd` is the file `name` of the folder.
bool IsAt(int fd, const OwnFolder& folder, const std::string& name) {
  struct stat own;
  struct stat there;
  return ::fstat(fd, &own) == 0 &&
         ::fstatat(folder.descriptor(), name.c_str(), &there,
                   AT_SYMLINK_NOFOLLOW) == 0 &&
         own.st_ino == there.st_ino && own.st_dev == there.st_dev;
}

// What changes while a draft is written.
struct Growth {
  off_t bytes = 0;
  timespec changed = {};
  static Growth Of(int fd) {
    struct stat info = {};
    ::fstat(fd, &info);
    return {info.st_size, info.st_mtim};
  }
  bool operator==(const Growth& other) const {
    return bytes == other.bytes && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

// Locks the file alone, and says so if that takes a while.
Status LockAlone(int fd, const std::string& path, Duration patience) {
  Growth seen = Growth::Of(fd);
  TimePoint grew = Clock::now();
  bool told = false;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK)
      return Unavailable(path, ": cannot be locked: ", std::strerror(errno));
    if (!std::exchange(told, true)) {
      LogInfo("waits for the process that writes ", path);
    }
    const Growth now = Growth::Of(fd);
    if (now != seen) {
      seen = now;
      grew = Clock::now();
    }
    if (Clock::now() - grew >= patience) {
      return Unavailable(path, ": its lock is held, and it has not grown for ",
                         Seconds(patience), " s");
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return OkStatus();
}

// Opens the draft `name`, which is made if there is none. One that others may
// have written is replaced.
StatusOr<int> OpenDraft(const OwnFolder& folder, const std::string& name) {
  std::string rule;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int fd = ::openat(
        folder.descriptor(), name.c_str(),
        O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    struct stat info = {};
    if (fd >= 0 && ::fstat(fd, &info) == 0) {
      rule = S_ISREG(info.st_mode) ? DistrustOf(info) : "is no regular file";
      if (rule.empty()) return fd;
    } else {
      rule = Cat("cannot be written: ", std::strerror(errno));
    }
    if (fd >= 0) ::close(fd);
    ::unlinkat(folder.descriptor(), name.c_str(), 0);
  }
  return Unavailable(folder.PathOf(name), ": ", rule);
}

}  // namespace

StatusOr<int> LockDraft(const OwnFolder& folder, const std::string& draft,
                        Duration patience) {
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(const int fd, OpenDraft(folder, draft));
    const Status locked = LockAlone(fd, folder.PathOf(draft), patience);
    // Another process has made the draft the file, or removed the draft,
    // unless it is still there.
    if (locked.ok() && IsAt(fd, folder, draft)) return fd;
    ::close(fd);
    if (!locked.ok()) return locked;
  }
}

}  // namespace sluice::weights
