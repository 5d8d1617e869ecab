#ifndef SLUICE_TESTS_SERVICES_STAGE_STAGE_PROCESS_H_
#define SLUICE_TESTS_SERVICES_STAGE_STAGE_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "tests/testing/holds_within.h"

extern char** environ;

namespace sluice::testing {

// One process of a stage's binary. posix_spawn, not fork: gRPC's threads live
// in the test.
class StageProcess {
 public:
  // `log`: the file that the process's log goes to; empty: the test's. `more`:
  // variables of its environment.
  explicit StageProcess(std::vector<std::string> argv, std::string log = "",
                        std::vector<std::string> more = {})
      : log_(std::move(log)) {
    const auto raw = [](std::vector<std::string>& texts) {
      std::vector<char*> pointers;
      for (std::string& text : texts) pointers.push_back(text.data());
      return pointers;
    };
    std::vector<char*> arguments = raw(argv);
    arguments.push_back(nullptr);
    std::vector<char*> variables = raw(more);
    for (char** own = environ; *own != nullptr; ++own) {
      variables.push_back(*own);
    }
    variables.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (!log_.empty()) {
      posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0600);
    }
    EXPECT_EQ(posix_spawn(&pid_, arguments[0], &actions, nullptr,
                          arguments.data(), variables.data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
  }
  StageProcess(const StageProcess&) = delete;
  StageProcess& operator=(const StageProcess&) = delete;
  ~StageProcess() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Exit code, or minus the signal that ended it; kRunsOn if it does not end.
  static constexpr int kRunsOn = -1000;
  int End(int signal_number) {
    Signal(signal_number);
    return WaitEnd();
  }
  int WaitEnd() {
    int status = 0;
    if (!HoldsWithin(std::chrono::seconds(60),
                     [&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) {
      return kRunsOn;
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Signal(int signal_number) const { kill(pid_, signal_number); }
  pid_t pid() const { return pid_; }
  // What it has logged.
  std::string said() const {
    std::stringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }
  bool AwaitSaid(const std::string& part) const {
    return HoldsWithin(std::chrono::seconds(30),
                       [&] { return said().find(part) != std::string::npos; });
  }

 private:
  const std::string log_;
  pid_t pid_ = -1;
};

// A file that a process writes its address to, on a path of its own.
class PortFile {
 public:
  explicit PortFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              Cat("sluice-", name, "-", getpid(), ".port")) {
    std::filesystem::remove(path_);
  }
  ~PortFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }
  // Waits for the address.
  std::string Read() const {
    EXPECT_TRUE(HoldsWithin(std::chrono::seconds(30),
                            [this] { return std::filesystem::exists(path_); }));
    std::string address;
    std::ifstream(path_) >> address;
    return address;
  }

 private:
  const std::filesystem::path path_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SERVICES_STAGE_STAGE_PROCESS_H_
