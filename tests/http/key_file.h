#ifndef SLUICE_TESTS_HTTP_KEY_FILE_H_
#define SLUICE_TESTS_HTTP_KEY_FILE_H_

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "common/base/cat.h"

namespace sluice::http {

// A key file that can be changed.
class KeyFile {
 public:
  explicit KeyFile(std::string_view text) { Write(text); }
  ~KeyFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  void Write(std::string_view text) const {
    const std::string draft = path_ + ".new";
    std::ofstream(draft) << text;
    ::chmod(draft.c_str(), 0600);
    ASSERT_EQ(std::rename(draft.c_str(), path_.c_str()), 0);
  }

 private:
  const std::string path_ = Cat(::testing::TempDir(), "keys-", ::getpid());
};

}  // namespace sluice::http

#endif  // SLUICE_TESTS_HTTP_KEY_FILE_H_
