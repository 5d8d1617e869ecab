#ifndef SLUICE_SERVICES_CLI_INTERRUPTS_H_
#define SLUICE_SERVICES_CLI_INTERRUPTS_H_

#include <csignal>

#include "common/base/status.h"

namespace sluice::cli {

// The signals that end a command: SIGINT, SIGTERM and SIGHUP, unless the
// process was started to ignore them. While the object lives, they do not act:
// a descriptor tells of them. One object at a time; threadless.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Can be read once a signal has come that Take has not returned.
  int fd() const { return fd_; }

  // Returns the latest signal that has come, and forgets it; 0: none has.
  int Take();

  enum class Woken { kReady, kSignal, kTimeout };
  // Waits until `fd` has one of the events of poll(2), a signal has come, or
  // the milliseconds are over; negative: without end. Signals go first.
  Woken Wait(int fd, short events, int milliseconds = -1) const;

  // The mask of signals without the object, for processes that this one starts.
  const sigset_t& mask_before() const { return before_; }

 private:
  sigset_t before_;
  int fd_ = -1;
};

// Returns CANCELLED with the exit code that shells give the signal.
Status InterruptedBy(int signal);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_INTERRUPTS_H_
