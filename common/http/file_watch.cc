#include "common/http/file_watch.h"

#include <sys/stat.h>

#include <utility>

#include "common/base/clock.h"
#include "common/base/exception_counts.h"
#include "common/base/log.h"

namespace sluice::http {
namespace {

constexpr auto kLookEvery = std::chrono::seconds(1);

}  // namespace

std::optional<FileVersion> VersionOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileVersion{info.st_dev,          info.st_ino,  info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec, info.st_size, info.st_mode};
}

FileWatch::FileWatch(std::string thread_name, std::function<void()> look)
    : look_(std::move(look)),
      thread_(std::move(thread_name), [this] { Run(); }) {}

FileWatch::~FileWatch() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  thread_.Join();
}

void FileWatch::Run() {
  for (;;) {
    {
      const TimePoint next = Clock::now() + kLookEvery;
      MutexLock lock(mutex_);
      while (!stopping_ && stop_.WaitUntil(mutex_, next)) {
      }
      if (stopping_) return;
    }
    const Status looked = CatchAndCount("file_watch", look_);
    if (!looked.ok()) LogError(Message(looked));
  }
}

}  // namespace sluice::http
