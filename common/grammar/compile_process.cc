#include "common/grammar/compile_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/base/catch_exceptions.h"
#include "common/base/log.h"
#include "common/base/retry_after.h"
#include "common/grammar/compile_trial.h"

extern char** environ;

namespace sluice {
namespace {

// Between two looks at whether an answer is still wanted.
constexpr int kLookMs = 20;
constexpr auto kFirstPause = std::chrono::milliseconds(100);
constexpr auto kLongestPause = std::chrono::seconds(10);
// A process that served for so long failed by chance.
constexpr auto kServedWell = std::chrono::seconds(60);
constexpr auto kTryAgain = std::chrono::seconds(1);
constexpr size_t kMaxAnswerBytes = size_t{1} << 30;

struct SocketPair {
  OwnedFd here;
  OwnedFd there;
};

std::optional<SocketPair> MakeSockets() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return std::nullopt;
  }
  return SocketPair{OwnedFd(fds[0]), OwnedFd(fds[1])};
}

// Returns the process' id, or 0.
pid_t Spawn(const std::string& program, int fd) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, fd, kCompileFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::string name = program_invocation_name;
  std::string argument = kCompileArgument;
  char* const argv[] = {name.data(), argument.data(), nullptr};
  pid_t pid = 0;
  const int failed =
      posix_spawn(&pid, program.c_str(), &files, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) {
    LogWarning("grammars: ", program, " does not start: ", strerror(failed));
    return 0;
  }
  return pid;
}

Status ShuttingDown() { return Unavailable("shutting down"); }

Status Check(const CompileProcess& process, const GrammarPatience& patience) {
  if (process.stopped()) return ShuttingDown();
  if (patience.wanted && !patience.wanted()) {
    return Cancelled("the client left while its grammar was compiled");
  }
  if (patience.deadline && *patience.deadline <= Clock::now()) {
    return WithRetryAfter(
        ResourceExhausted("the request waited too long for its grammar"),
        kTryAgain);
  }
  return OkStatus();
}

}  // namespace

void OwnedFd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

CompileProcess::CompileProcess(std::string program,
                               std::function<StatusOr<CompileSetup>()> setup)
    : program_(std::move(program)),
      setup_(std::move(setup)),
      thread_("grammar-process", [this] { Supervise(); }) {}

CompileProcess::~CompileProcess() { Stop(); }

void CompileProcess::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    for (const int fd : {control_, starting_}) {
      if (fd >= 0) shutdown(fd, SHUT_RDWR);
    }
    if (pid_ != 0) kill(pid_, SIGKILL);
    changed_.NotifyAll();
  }
  thread_.Join();
}

void CompileProcess::Supervise() {
  Duration pause = kFirstPause;
  while (!stopped_) {
    const TimePoint begin = Clock::now();
    CatchExceptions("grammar-process", [this] {
      if (auto control = Start()) AwaitEnd(control->get());
    }).IgnoreError();
    MutexLock lock(mutex_);
    if (pid_ != 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = 0;
    }
    if (stopped_) return;
    if (Clock::now() - begin > kServedWell) pause = kFirstPause;
    LogWarning("the process that tries grammars ended: another one starts in ",
               Seconds(pause), " s");
    const TimePoint next = Clock::now() + pause;
    while (!stopped_ && changed_.WaitUntil(mutex_, next)) {
    }
    pause = std::min<Duration>(2 * pause, kLongestPause);
  }
}

std::optional<OwnedFd> CompileProcess::Start() {
  const StatusOr<CompileSetup> setup = setup_();
  auto sockets = MakeSockets();
  if (!setup.ok() || !sockets) return std::nullopt;
  const std::string first = Encode(*setup);  // may throw: before the process
  {
    MutexLock lock(mutex_);
    if (stopped_) return std::nullopt;
    pid_ = Spawn(program_, sockets->there.get());
    if (pid_ == 0) return std::nullopt;
    starting_ = sockets->here.get();
  }
  sockets->there.Reset();
  std::string ready;
  const bool served = WriteMessage(sockets->here.get(), first) &&
                      ReadMessage(sockets->here.get(), 0, ready);
  MutexLock lock(mutex_);
  starting_ = -1;
  if (!served) return std::nullopt;
  return std::move(sockets->here);
}

void CompileProcess::AwaitEnd(int fd) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    control_ = fd;
    changed_.NotifyAll();
  }
  pollfd end = {fd, POLLIN, 0};
  while (!stopped_ && poll(&end, 1, -1) < 0) {
  }
  MutexLock lock(mutex_);
  control_ = -1;
}

// Hands a trial's ends over. False: there is no process now.
StatusOr<bool> CompileProcess::Hand(const std::array<int, 2>& ends) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ends))> control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(ends));
  std::memcpy(CMSG_DATA(header), ends.data(), sizeof(ends));
  MutexLock lock(mutex_);
  if (control_ < 0) return false;
  const ssize_t sent = sendmsg(control_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == 1) return true;
  if (errno == EPIPE || errno == ECONNRESET) return false;
  return WithRetryAfter(Unavailable("no grammar can be tried now"), kTryAgain);
}

StatusOr<CompileProcess::Channels> CompileProcess::Begin(
    const GrammarPatience& patience) {
  auto messages = MakeSockets();
  auto end = MakeSockets();
  if (!messages || !end) {
    return WithRetryAfter(Unavailable("too few descriptors for a grammar"),
                          kTryAgain);
  }
  for (const int fd : {messages->here.get(), end->here.get()}) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(const bool handed,
                            Hand({messages->there.get(), end->there.get()}));
    if (handed) {
      return Channels{std::move(messages->here), std::move(end->here)};
    }
    const Status waits = Check(*this, patience);
    if (waits.code() == StatusCode::kResourceExhausted) {
      return WithRetryAfter(
          Unavailable("no process tries grammars at this moment"), kTryAgain);
    }
    SLUICE_RETURN_IF_ERROR(waits);
    MutexLock lock(mutex_);
    if (control_ < 0 && !stopped_) {
      changed_.WaitUntil(mutex_,
                         Clock::now() + std::chrono::milliseconds(kLookMs));
    }
  }
}

StatusOr<TrialAnswer> CompileTrial::Ask(const TrialQuestion& question) {
  ran_out_of_time_ = false;
  // A process that ended by itself, or of which all ended, had its reasons
  // elsewhere: the question is asked once more.
  for (int tries = 0; tries < 2; ++tries) {
    if (!channels_) {
      SLUICE_ASSIGN_OR_RETURN(channels_, process_.Begin(patience_));
    }
    SLUICE_ASSIGN_OR_RETURN(auto answer, Exchange(question));
    if (answer) return *std::move(answer);
    SLUICE_ASSIGN_OR_RETURN(const auto end, ReadEnd());
    channels_.reset();
    if (end) return EndedBy(*end, question);
  }
  return WithRetryAfter(Unavailable("the process that tries grammars ended"),
                        kTryAgain);
}

Status CompileTrial::EndedBy(const TrialEnd& end,
                             const TrialQuestion& question) {
  TrialFailures& failures = process_.failures();
  switch (end.why) {
    case TrialEnd::Why::kTime:
      ++failures.time;
      ran_out_of_time_ = true;
      return InvalidArgument("took more than ", question.compile_ms,
                             " ms of CPU time to try");
    case TrialEnd::Why::kMemory:
      ++failures.memory;
      return InvalidArgument("took more than ", kMaxTrialBytes >> 20,
                             " MiB of memory to compile");
    case TrialEnd::Why::kNotBegun:
      return WithRetryAfter(
          Unavailable("no process for a grammar: ", strerror(end.signal)),
          kTryAgain);
    default:
      ++failures.crashed;
      LogWarning("a grammar of ", question.text.size(),
                 " bytes crashed its compiler, in a process of its own: ",
                 end.signal != 0 ? strsignal(end.signal) : "an exit");
      return InvalidArgument("the compiler crashed");
  }
}

StatusOr<std::optional<TrialAnswer>> CompileTrial::Exchange(
    const TrialQuestion& question) {
  const std::string bytes = Encode(question);
  uint64_t size = bytes.size();
  std::string whole(reinterpret_cast<const char*>(&size), sizeof(size));
  whole += bytes;
  SLUICE_ASSIGN_OR_RETURN(bool open, Write(whole));
  const int fd = channels_->messages.get();
  std::string answer;
  if (open) {
    SLUICE_ASSIGN_OR_RETURN(open, Read(fd, &size, sizeof(size)));
  }
  if (open && size <= kMaxAnswerBytes) {
    answer.resize(size);
    SLUICE_ASSIGN_OR_RETURN(open, Read(fd, answer.data(), answer.size()));
  }
  if (!open) return std::optional<TrialAnswer>();
  auto decoded = DecodeTrialAnswer(answer);
  if (!decoded) return Internal("a trial's answer has no form");
  return decoded;
}

StatusOr<std::optional<TrialEnd>> CompileTrial::ReadEnd() {
  struct {
    uint64_t size;
    TrialEnd end;
  } message = {};
  SLUICE_ASSIGN_OR_RETURN(
      const bool told, Read(channels_->end.get(), &message, sizeof(message)));
  if (!told) return std::optional<TrialEnd>();
  return std::optional(message.end);
}

StatusOr<bool> CompileTrial::Write(std::string_view bytes) {
  const int fd = channels_->messages.get();
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      SLUICE_RETURN_IF_ERROR(Await(fd, POLLOUT));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

StatusOr<bool> CompileTrial::Read(int fd, void* data, size_t size) {
  char* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = recv(fd, to, size, 0);
    if (got > 0) {
      to += got;
      size -= static_cast<size_t>(got);
    } else if (got < 0 && errno == EAGAIN) {
      SLUICE_RETURN_IF_ERROR(Await(fd, POLLIN));
    } else if (got == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

Status CompileTrial::Await(int fd, short events) const {
  for (;;) {
    SLUICE_RETURN_IF_ERROR(Check(process_, patience_));
    pollfd one = {fd, events, 0};
    if (poll(&one, 1, kLookMs) > 0) return OkStatus();
  }
}

bool IsOfTheMoment(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:
    case StatusCode::kCancelled:
    case StatusCode::kDeadlineExceeded:
      return true;
    default:
      return false;
  }
}

}  // namespace sluice
