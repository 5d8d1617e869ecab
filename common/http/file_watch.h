#ifndef SLUICE_COMMON_HTTP_FILE_WATCH_H_
#define SLUICE_COMMON_HTTP_FILE_WATCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"

namespace sluice::http {

// The version of a file: equal for an unchanged file.
struct FileVersion {
  uint64_t device = 0, inode = 0;
  int64_t seconds = 0, nanoseconds = 0, size = 0;
  uint32_t mode = 0;  // type and permissions, as stat gives them
  bool operator==(const FileVersion&) const = default;
};

// The version of the file at `path`; nothing, with errno set, if stat fails.
std::optional<FileVersion> VersionOf(const std::string& path);

// Calls `look` once a second until it is destroyed, on a thread of its own, so
// that a slow disk delays no request. All that `look` uses must outlive it.
class FileWatch {
 public:
  FileWatch(std::string thread_name, std::function<void()> look);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  void Run();

  const std::function<void()> look_;
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  NamedThread thread_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_FILE_WATCH_H_
