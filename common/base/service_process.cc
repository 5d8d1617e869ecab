#include "common/base/service_process.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "common/base/log.h"

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

Status ServeUntilSignal(
    const sigset_t& signals,
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
  SLUICE_RETURN_IF_ERROR(loaded);
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  LogInfo("signal ", signal_number, ": draining; a second one ends at once");
  return OkStatus();
}

}  // namespace sluice
