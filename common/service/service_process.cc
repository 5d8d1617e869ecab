#include "common/service/service_process.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "common/base/log.h"
#include "common/service/notify_socket.h"

namespace sluice {
namespace {

std::atomic<const char*> asked_to_end{nullptr};

timespec ToTimespec(Duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {seconds.count(),
          std::chrono::duration_cast<std::chrono::nanoseconds>(time - seconds)
              .count()};
}

}  // namespace

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

void AskToEnd(const char* why) { asked_to_end = why; }

Status AwaitLoad(const sigset_t& signals,
                 const std::function<Status(TimePoint deadline)>& wait_loaded) {
  Status loaded = DeadlineExceeded("");
  while (loaded.code() == StatusCode::kDeadlineExceeded) {
    const timespec now{0, 0};
    const char* const why = asked_to_end;
    if (why != nullptr || sigtimedwait(&signals, nullptr, &now) > 0) {
      if (why != nullptr) LogError("ends while loading: ", why);
      if (why == nullptr) LogInfo("asked to end while loading");
      FlushLog(std::chrono::seconds(1));
      // Reading cannot be broken off; nothing else to lose.
      std::_Exit(why == nullptr ? 0 : 1);
    }
    loaded = wait_loaded(Clock::now() + std::chrono::milliseconds(100));
  }
  return loaded;
}

Status AwaitSignal(const sigset_t& signals, const std::function<void()>& tidy) {
  constexpr Duration kTidyInterval = std::chrono::seconds(2);
  constexpr Duration kLook = std::chrono::milliseconds(200);  // for AskToEnd
  NotifySocket manager = NotifySocket::FromEnvironment();
  manager.Ready();
  const Duration pause =
      std::min(manager.ping_interval().value_or(kTidyInterval), kTidyInterval);
  const timespec look = ToTimespec(std::min(pause, kLook));
  TimePoint next = Clock::now() + pause;
  const char* why = nullptr;
  int number = -1;
  while (number < 0 && why == nullptr) {
    number = sigtimedwait(&signals, nullptr, &look);
    why = asked_to_end;
    if (Clock::now() < next) continue;
    next = Clock::now() + pause;
    manager.StillAlive();
    if (tidy) tidy();
  }
  manager.Stopping();
  if (number < 0) {
    LogError("draining: ", why);
    return Unavailable(why);
  }
  LogInfo("signal ", number, ": draining; a second one ends at once");
  return OkStatus();
}

}  // namespace sluice
