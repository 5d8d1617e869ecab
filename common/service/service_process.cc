#include "common/service/service_process.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "common/base/log.h"
#include "common/service/notify_socket.h"

namespace sluice {

sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // write() fails beyond RLIMIT_FSIZE
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

void UnblockSignals(const sigset_t& signals) {
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Status WritePortFile(const std::string& path, const std::string& address) {
  if (path.empty()) return OkStatus();
  const std::string draft = path + ".tmp";
  std::ofstream out(draft);
  out << address << "\n";
  out.close();
  if (!out || std::rename(draft.c_str(), path.c_str()) != 0) {
    return Unavailable("--port-file ", path, " cannot be written");
  }
  return OkStatus();
}

Status AwaitLoad(const sigset_t& signals,
                 const std::function<Status(TimePoint deadline)>& wait_loaded) {
  Status loaded = DeadlineExceeded("");
  while (loaded.code() == StatusCode::kDeadlineExceeded) {
    const timespec now{0, 0};
    if (sigtimedwait(&signals, nullptr, &now) > 0) {
      LogInfo("asked to end while loading");
      FlushLog(std::chrono::seconds(1));
      std::_Exit(0);  // reading cannot be broken off; nothing else to lose
    }
    loaded = wait_loaded(Clock::now() + std::chrono::milliseconds(100));
  }
  return loaded;
}

void AwaitSignal(const sigset_t& signals, const std::function<void()>& tidy) {
  constexpr Duration kTidyInterval = std::chrono::seconds(2);
  NotifySocket manager = NotifySocket::FromEnvironment();
  manager.Ready();
  const Duration pause =
      std::min(manager.ping_interval().value_or(kTidyInterval), kTidyInterval);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(pause);
  const timespec time{
      seconds.count(),
      std::chrono::duration_cast<std::chrono::nanoseconds>(pause - seconds)
          .count()};
  int number = -1;
  while ((number = sigtimedwait(&signals, nullptr, &time)) < 0) {
    manager.StillAlive();
    if (tidy) tidy();
  }
  manager.Stopping();
  LogInfo("signal ", number, ": draining; a second one ends at once");
}

}  // namespace sluice
