#include "services/cli/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace sluice::cli {
namespace {

// Returns the words as C strings, null behind them; `words` outlives them.
std::vector<char*> Pointers(Words& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

Words EnvironmentWith(const Words& more) {
  Words all = more;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& other : more) {
      replaced = replaced || other.starts_with(name);
    }
    if (!replaced) all.push_back(text);
  }
  return all;
}

struct Pipe {
  int ends[2] = {-1, -1};
  bool Open() { return ::pipe2(ends, O_CLOEXEC) == 0; }
  int Take(int end) { return std::exchange(ends[end], -1); }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
};

}  // namespace

StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const Words& argv, const Options& options) {
  Pipe input, output;
  if (!input.Open() || !output.Open()) {
    return Unavailable("pipe: ", std::strerror(errno));
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input.ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output.ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &options.mask);
  Words words = argv;
  Words variables = EnvironmentWith(options.environment);
  pid_t pid = 0;
  const int error =
      ::posix_spawnp(&pid, words[0].c_str(), &files, &attributes,
                     Pointers(words).data(), Pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return Unavailable("running ", words[0], ": ", std::strerror(error));
  }
  const int to = input.Take(1);
  const int from = output.Take(0);
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, to, from));
}

ChildProcess::~ChildProcess() {
  CloseInput();
  ::close(output_);
}

bool ChildProcess::ReadOutput() {
  char bytes[4096];
  ssize_t got = 0;
  do {
    got = ::read(output_, bytes, sizeof(bytes));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  text_.append(bytes, static_cast<size_t>(got));
  return true;
}

void ChildProcess::CloseInput() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0) ::kill(-pid_, signal);
}

int ChildProcess::Wait() {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(pid_, &status, 0);
  } while (ended < 0 && errno == EINTR);
  pid_ = 0;
  if (ended < 0) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace sluice::cli
