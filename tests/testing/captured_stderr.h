#ifndef SLUICE_TESTS_TESTING_CAPTURED_STDERR_H_
#define SLUICE_TESTS_TESTING_CAPTURED_STDERR_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "common/base/log.h"

namespace sluice {

// Another descriptor in the place of stderr while it lives.
class ReplacedStderr {
 public:
  explicit ReplacedStderr(int fd) : saved_(dup(STDERR_FILENO)) {
    EXPECT_TRUE(FlushLog(std::chrono::seconds(10)));
    EXPECT_EQ(dup2(fd, STDERR_FILENO), STDERR_FILENO);
  }
  ~ReplacedStderr() {
    FlushLog(std::chrono::seconds(10));
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }
  ReplacedStderr(const ReplacedStderr&) = delete;
  ReplacedStderr& operator=(const ReplacedStderr&) = delete;

 private:
  const int saved_;
};

// What is logged while it lives.
class CapturedStderr {
 public:
  CapturedStderr() : file_(memfd_create("stderr", 0)), replaced_(file_) {}
  ~CapturedStderr() { close(file_); }

  std::string Text() const {
    EXPECT_TRUE(FlushLog(std::chrono::seconds(10)));
    std::string text(static_cast<size_t>(lseek(file_, 0, SEEK_END)), '\0');
    const auto bytes = pread(file_, text.data(), text.size(), 0);
    EXPECT_EQ(static_cast<size_t>(bytes), text.size());
    return text;
  }

 private:
  const int file_;
  const ReplacedStderr replaced_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_TESTING_CAPTURED_STDERR_H_
