#ifndef SLUICE_COMMON_GRAMMAR_COMPILE_PROCESS_H_
#define SLUICE_COMMON_GRAMMAR_COMPILE_PROCESS_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/grammar/compile_wire.h"

namespace sluice {

// How long somebody waits for work on a grammar.
struct GrammarPatience {
  std::function<bool()> wanted;       // any thread; may be empty
  std::optional<TimePoint> deadline;  // none: as long as it takes
};

// Trials that ended before their answer, by reason.
struct TrialFailures {
  std::atomic<uint64_t> crashed{0};
  std::atomic<uint64_t> time{0};
  std::atomic<uint64_t> memory{0};
};

// Closes a descriptor.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() { Reset(); }
  OwnedFd(OwnedFd&& other) : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  void Reset();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A process that forks others, in which texts of clients are tried: what
// crashes there ends no other request. It runs this machine's `program` with
// kCompileArgument (see compile_server.h), is started again when it ends, and
// ends with this process. Any thread may call all methods.
class CompileProcess {
 public:
  // `setup` is called at each start, on a thread "grammar-process".
  CompileProcess(std::string program,
                 std::function<StatusOr<CompileSetup>()> setup);
  ~CompileProcess();  // Stop()
  CompileProcess(const CompileProcess&) = delete;
  CompileProcess& operator=(const CompileProcess&) = delete;

  // Ends the process and all trials at once; there are no more.
  void Stop();
  bool stopped() const { return stopped_; }

  TrialFailures& failures() { return failures_; }

  // This end of a trial's channels: its messages, and how it ended.
  struct Channels {
    OwnedFd messages;
    OwnedFd end;
  };
  // Begins a trial. UNAVAILABLE without a process until `patience` ends.
  StatusOr<Channels> Begin(const GrammarPatience& patience);

 private:
  void Supervise();
  // Starts the process and waits until it can serve; nothing if it cannot.
  std::optional<OwnedFd> Start();
  void AwaitEnd(int fd);
  StatusOr<bool> Hand(const std::array<int, 2>& ends);

  const std::string program_;
  const std::function<StatusOr<CompileSetup>()> setup_;
  std::atomic<bool> stopped_{false};
  TrialFailures failures_;
  Mutex mutex_;
  CondVar changed_;
  int control_ ABSL_GUARDED_BY(mutex_) = -1;  // of a process that serves
  int starting_ ABSL_GUARDED_BY(mutex_) = -1;
  pid_t pid_ ABSL_GUARDED_BY(mutex_) = 0;
  NamedThread thread_;  // last: joined first
};

// The trial of one request's texts, in a process of its own. Not thread-safe.
class CompileTrial {
 public:
  // `process` must outlive the trial.
  CompileTrial(CompileProcess& process, GrammarPatience patience)
      : process_(process), patience_(std::move(patience)) {}

  // Asks, and waits for the answer, whose code may be an error.
  // INVALID_ARGUMENT: the process ended at the question, by a crash or above a
  // limit; the next question goes to a new process. UNAVAILABLE: no process
  // answers. RESOURCE_EXHAUSTED, with RetryAfterSeconds: the deadline passed.
  // CANCELLED: the answer is not wanted any more.
  StatusOr<TrialAnswer> Ask(const TrialQuestion& question);

  // Whether the latest question took more CPU time than it may.
  bool ran_out_of_time() const { return ran_out_of_time_; }

 private:
  // Nothing: the trial has ended.
  StatusOr<std::optional<TrialAnswer>> Exchange(const TrialQuestion& question);
  // Nothing: the process that says so has ended, too.
  StatusOr<std::optional<TrialEnd>> ReadEnd();
  // False: the other end is closed.
  StatusOr<bool> Write(std::string_view bytes);
  StatusOr<bool> Read(int fd, void* data, size_t size);
  Status Await(int fd, short events) const;
  Status EndedBy(const TrialEnd& end, const TrialQuestion& question);

  CompileProcess& process_;
  const GrammarPatience patience_;
  std::optional<CompileProcess::Channels> channels_;
  bool ran_out_of_time_ = false;
};

// Whether an error says nothing of the text: it is of the moment.
bool IsOfTheMoment(const Status& status);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_COMPILE_PROCESS_H_
