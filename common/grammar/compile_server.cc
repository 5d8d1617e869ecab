#include "common/grammar/compile_server.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/grammar/compile_trial.h"
#include "common/grammar/compile_wire.h"
#include "common/grammar/matcher.h"

namespace sluice {
namespace {

// Between two looks at what memory the trials have.
constexpr int kWatchMs = 5;
// A vocabulary of 4 million ids has less.
constexpr size_t kMaxSetupBytes = size_t{1} << 30;

struct Job {
  pid_t pid = 0;
  int end_fd = -1;
  bool over_memory = false;
  bool killed = false;  // who asked is gone
};

// Returns the resident bytes of a process; 0 if the system does not tell.
size_t Resident(pid_t pid) {
  std::ifstream file(Cat("/proc/", pid, "/statm"));
  size_t all = 0;
  size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What a shell or a service manager sends to all processes is for the one that
// started this one: trials go on while it drains.
void SetUpSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) {
    signal(number, SIG_IGN);
  }
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  sigaction(SIGCHLD, &action, nullptr);
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_SETMASK, &child, nullptr);  // ppoll lets it in
}

// Descriptors of the process that started this one, which no one may hold open.
void CloseOthers() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, kCompileFd + 1, ~0u, 0) == 0) return;
#endif
  for (int fd = kCompileFd + 1; fd < 65536; ++fd) close(fd);
}

// Threads have half the stack that they have in the process that repeats.
void HalveStacks() {
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  size_t size = 0;
  pthread_attr_getstacksize(&attributes, &size);
  pthread_attr_setstacksize(&attributes, size / 2);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

void SetUpProcess() {
  SetUpSignals();
  CloseOthers();
  HalveStacks();
  mallopt(M_ARENA_MAX, 1);
  prctl(PR_SET_NAME, kCompileArgument, 0, 0, 0);
  // Where memory is short, this process' trials go first.
  std::ofstream("/proc/self/oom_score_adj") << 1000;
}

class Server {
 public:
  Server(CompileSetup setup,
         std::shared_ptr<const GrammarVocabulary> vocabulary)
      : setup_(std::move(setup)),
        vocabulary_(std::move(vocabulary)),
        resident_(Resident(getpid())),
        null_(open("/dev/null", O_WRONLY | O_CLOEXEC)) {}

  int Serve() {
    for (;;) {
      Await();
      KillUnwanted();  // first: what is polled are these jobs' descriptors
      const bool asked = polled_.front().revents != 0;
      Reap();
      if (asked && !Accept()) break;
      KillLarge();
    }
    for (const Job& job : jobs_) kill(job.pid, SIGKILL);
    return 0;
  }

 private:
  void Await() {
    polled_ = {{kCompileFd, POLLIN, 0}};
    for (const Job& job : jobs_) {
      polled_.push_back({job.killed ? -1 : job.end_fd, 0, 0});
    }
    const timespec look = {0, kWatchMs * 1'000'000L};
    sigset_t none;
    sigemptyset(&none);
    if (ppoll(polled_.data(), polled_.size(), jobs_.empty() ? nullptr : &look,
              &none) < 0) {
      for (pollfd& one : polled_) one.revents = 0;
    }
  }

  // Takes a trial in. False: there will be no more.
  bool Accept() {
    char byte = 0;
    iovec data = {&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(kCompileFd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    if (got == 0) return false;
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_len != CMSG_LEN(2 * sizeof(int))) {
      return true;  // too many descriptors here: the trial's end tells
    }
    int fds[2] = {-1, -1};
    std::memcpy(fds, CMSG_DATA(header), sizeof(fds));
    Begin(fds[0], fds[1]);
    return true;
  }

  void Begin(int fd, int end_fd) {
    const pid_t self = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
      if (getppid() != self) _exit(1);
      CloseInTrial(end_fd);
      RunTrial(fd, setup_, vocabulary_);
    }
    close(fd);
    if (pid < 0) return Tell({0, end_fd}, {TrialEnd::Why::kNotBegun, errno});
    jobs_.push_back({pid, end_fd});
  }

  // Only the trial's own descriptor is left, and nowhere to write to.
  void CloseInTrial(int end_fd) const {
    close(kCompileFd);
    close(end_fd);
    for (const Job& job : jobs_) close(job.end_fd);
    if (null_ >= 0) dup2(null_, STDERR_FILENO);
    signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
  }

  void Reap() {
    for (;;) {
      int status = 0;
      rusage usage = {};
      const pid_t pid = wait4(-1, &status, WNOHANG, &usage);
      if (pid <= 0) return;
      const auto job =
          std::find_if(jobs_.begin(), jobs_.end(),
                       [pid](const Job& one) { return one.pid == pid; });
      if (job == jobs_.end()) continue;
      Tell(*job, EndOf(*job, status, usage));
      jobs_.erase(job);
    }
  }

  TrialEnd EndOf(const Job& job, int status, const rusage& usage) const {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      return {TrialEnd::Why::kEnded, 0};
    }
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (job.over_memory) return {TrialEnd::Why::kMemory, number};
    if (number == SIGXCPU) return {TrialEnd::Why::kTime, number};
    // The kernel, where memory is short. RLIMIT_CPU sends SIGXCPU before.
    if (number == SIGKILL) return {TrialEnd::Why::kMemory, number};
    // Rust aborts when it gets no memory; a sanitizer exits.
    const auto most = static_cast<size_t>(usage.ru_maxrss) << 10;
    const bool gave_up = number == SIGABRT || WIFEXITED(status);
    if (gave_up && most > resident_ + kMaxTrialBytes / 4) {
      return {TrialEnd::Why::kMemory, number};
    }
    return {TrialEnd::Why::kCrashed, number};
  }

  static void Tell(const Job& job, TrialEnd end) {
    WriteMessage(job.end_fd,
                 {reinterpret_cast<const char*>(&end), sizeof(end)});
    close(job.end_fd);
  }

  void KillUnwanted() {
    for (Job& job : jobs_) {
      const auto polled =
          std::find_if(polled_.begin(), polled_.end(), [&job](const pollfd& p) {
            return p.fd == job.end_fd && p.revents != 0;
          });
      if (polled == polled_.end() || job.killed) continue;
      job.killed = true;
      kill(job.pid, SIGKILL);
    }
  }

  void KillLarge() {
    for (Job& job : jobs_) {
      if (job.over_memory || Resident(job.pid) <= resident_ + kMaxTrialBytes) {
        continue;
      }
      job.over_memory = true;
      kill(job.pid, SIGKILL);
    }
  }

  const CompileSetup setup_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const size_t resident_;
  const int null_;
  std::vector<Job> jobs_;
  std::vector<pollfd> polled_;
};

}  // namespace

bool IsCompileProcess(int argc, char** argv) {
  return argc == 2 && std::string_view(argv[1]) == kCompileArgument;
}

int RunCompileProcess() {
  SetUpProcess();
  std::string bytes;
  if (!ReadMessage(kCompileFd, kMaxSetupBytes, bytes)) return 1;
  auto setup = DecodeCompileSetup(bytes);
  bytes = {};
  if (!setup) return 1;
  auto vocabulary = GrammarVocabulary::OfTable(setup->table, setup->vocab_size,
                                               setup->eos_ids);
  if (!vocabulary.ok()) return 1;
  setup->table = {};
  malloc_trim(0);
  if (!WriteMessage(kCompileFd, {})) return 0;
  return Server(*std::move(setup), *std::move(vocabulary)).Serve();
}

}  // namespace sluice
