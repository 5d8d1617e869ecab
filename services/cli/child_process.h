#ifndef SLUICE_SERVICES_CLI_CHILD_PROCESS_H_
#define SLUICE_SERVICES_CLI_CHILD_PROCESS_H_

#include <sys/types.h>

#include <csignal>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "services/cli/command_line.h"

namespace sluice::cli {

// A program that this process runs, in a session of its own: a terminal's
// Ctrl-C does not reach it. Its standard output is a pipe to this process, its
// standard input another one from it, which ends with this process, however it
// ends. Threadless. The destructor closes the pipes and does not wait.
class ChildProcess {
 public:
  struct Options {
    sigset_t mask{};    // of signals that the program begins with
    Words environment;  // "NAME=VALUE" besides this process's
  };
  // UNAVAILABLE if the program cannot be started.
  static StatusOr<std::unique_ptr<ChildProcess>> Start(const Words& argv,
                                                       const Options& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int output_fd() const { return output_; }
  // Reads what there is of the standard output into text(); false at its end.
  bool ReadOutput();
  const std::string& text() const { return text_; }

  void CloseInput();
  // Sends the signal to the processes of its group.
  void Signal(int signal) const;
  // Waits for the end. Returns the exit code, as shells give it: 128 and the
  // number of a signal.
  int Wait();

 private:
  ChildProcess(pid_t pid, int input, int output)
      : pid_(pid), input_(input), output_(output) {}

  pid_t pid_;
  int input_;
  int output_;
  std::string text_;
};

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_CHILD_PROCESS_H_
