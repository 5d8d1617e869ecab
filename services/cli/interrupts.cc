#include "services/cli/interrupts.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "services/cli/command_line.h"

namespace sluice::cli {

Interrupts::Interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    const bool ignored = ::sigaction(signal, nullptr, &action) == 0 &&
                         action.sa_handler == SIG_IGN;
    if (!ignored) sigaddset(&signals, signal);
  }
  ::sigprocmask(SIG_BLOCK, &signals, &before_);
  fd_ = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

Interrupts::~Interrupts() {
  if (fd_ >= 0) ::close(fd_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int Interrupts::Take() {
  int signal = 0;
  signalfd_siginfo told;
  while (::read(fd_, &told, sizeof(told)) == sizeof(told)) {
    signal = static_cast<int>(told.ssi_signo);
  }
  return signal;
}

Interrupts::Woken Interrupts::Wait(int fd, short events,
                                   int milliseconds) const {
  pollfd waits[] = {{fd_, POLLIN, 0}, {fd, events, 0}};
  int count = 0;
  do {
    count = ::poll(waits, 2, milliseconds);
  } while (count < 0 && errno == EINTR);
  if (count == 0) return Woken::kTimeout;
  return (waits[0].revents & POLLIN) != 0 ? Woken::kSignal : Woken::kReady;
}

Status InterruptedBy(int signal) {
  return WithExitCode(Cancelled("ended by SIG", ::sigabbrev_np(signal)),
                      128 + signal);
}

}  // namespace sluice::cli
