#ifndef SLUICE_TESTS_SERVICES_STAGE_STAGE_PROCESS_H_
#define SLUICE_TESTS_SERVICES_STAGE_STAGE_PROCESS_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
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
  explicit StageProcess(std::vector<std::string> argv) {
    std::vector<char*> raw;
    for (std::string& arg : argv) raw.push_back(arg.data());
    raw.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, raw[0], nullptr, nullptr, raw.data(), environ),
              0);
  }
  StageProcess(StageProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)) {}
  ~StageProcess() {
    if (pid_ > 0) End(SIGKILL);
  }
  // Exit code, or minus the signal that ended it.
  int End(int signal_number) {
    Signal(signal_number);
    return WaitEnd();
  }
  int WaitEnd() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Signal(int signal_number) const { kill(pid_, signal_number); }
  pid_t pid() const { return pid_; }

 private:
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
