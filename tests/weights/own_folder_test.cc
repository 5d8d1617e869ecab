// Folders of one user below those of everybody: as other users, since root may
// write everywhere.
#include "common/weights/own_folder.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tests/testing/captured_stderr.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

namespace fs = std::filesystem;
using sluice::testing::TempDir;
using ::testing::HasSubstr;
using Missing = OwnFolder::Missing;

// Users without a name, as systemd's DynamicUser gives them.
constexpr uid_t kUser = 61184;
constexpr uid_t kOther = 61185;
constexpr gid_t kGroup = 61500;

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

// Runs `work` in a process of the user, which is in the group, too, and returns
// what it returns.
std::string RunAs(uid_t user, const std::function<std::string()>& work) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const gid_t groups[] = {kGroup};
    std::string said = "cannot become the user";
    if (::setgroups(1, groups) == 0 && ::setgid(user) == 0 &&
        ::setuid(user) == 0) {
      said = work();
    }
    const ssize_t wrote = ::write(ends[1], said.data(), said.size());
    ::_exit(wrote == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  char some[256];
  for (ssize_t got; (got = ::read(ends[0], some, sizeof(some))) > 0;) {
    said.append(some, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return said;
}

class OwnFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may become other users";
    base_ = dir_.path() + "/base";
    fs::create_directory(base_);
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  }
  void Set(const std::string& path, mode_t mode, uid_t user = 0,
           gid_t group = 0) const {
    ASSERT_EQ(::chown(path.c_str(), user, group), 0) << path;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0) << path;
  }
  std::string own() const { return base_ + "/uid-" + std::to_string(kUser); }
  std::string file() const { return own() + "/model/f"; }

  // Makes the folder as kUser and writes a file: "written", or the error.
  std::string Write() const {
    return RunAs(kUser, [this]() -> std::string {
      const auto folder = OwnFolder::Open(base_, "model", Missing::kMake);
      if (!folder.ok()) return Message(folder.status());
      std::ofstream(file()) << "bytes";
      ::chmod(file().c_str(), 0400);
      return "written";
    });
  }
  // Opens the file as kUser: "opened", or the error.
  std::string Read() const {
    return RunAs(kUser, [this]() -> std::string {
      const auto folder = OwnFolder::Open(base_, "model", Missing::kFail);
      if (!folder.ok()) return Message(folder.status());
      const auto opened = (*folder)->OpenFile("f");
      return opened.ok() ? "opened" : Message(opened.status());
    });
  }

  const TempDir dir_;
  std::string base_;
};

TEST_F(OwnFolderTest, IsMadeWhereEverybodyWritesAndClosedToOthers) {
  for (const mode_t mode : {mode_t{0777}, mode_t{01777}}) {
    Set(base_, mode);
    EXPECT_THAT(Read(), HasSubstr("no such folder"));
    EXPECT_EQ(Write(), "written");
    EXPECT_EQ(Read(), "opened");
    EXPECT_EQ(ModeOf(own()), 0700u);
    EXPECT_EQ(ModeOf(own() + "/model"), 0700u);
    EXPECT_EQ(ModeOf(own() + "/model/secret"), 0600u);
    const std::string other = RunAs(kOther, [this]() -> std::string {
      return std::ifstream(file()).good() ? "read" : "not read";
    });
    EXPECT_EQ(other, "not read");
    fs::remove_all(own());
  }
}

TEST_F(OwnFolderTest, OfAnotherUserIsNeitherReadNorWritten) {
  Set(base_, 01777);
  const std::string made = RunAs(kOther, [this]() -> std::string {
    ::umask(0);
    fs::create_directories(own() + "/model");
    std::ofstream(file()) << "poison";
    return "made";
  });
  EXPECT_EQ(made, "made");
  EXPECT_THAT(Read(), HasSubstr("is of user 61185, not of 61184 or root"));
  EXPECT_THAT(Write(), HasSubstr("is of user 61185, not of 61184 or root"));
}

TEST_F(OwnFolderTest, UnderAGroupsModesIsClosedToTheGroup) {
  Set(base_, 02775, 0, kGroup);
  EXPECT_EQ(Write(), "written");
  EXPECT_EQ(Read(), "opened");
  EXPECT_EQ(ModeOf(own()) & 0777, 0700u);
  // What a mount with an fsGroup does to all that is there.
  for (const std::string& folder : {own(), own() + "/model"}) {
    Set(folder, 02770, kUser, kGroup);
  }
  Set(file(), 0660, kUser, kGroup);
  EXPECT_THAT(Read(), HasSubstr("no such file"));
  EXPECT_EQ(ModeOf(own() + "/model") & 0777, 0700u);
  EXPECT_EQ(Write(), "written");
  EXPECT_EQ(Read(), "opened");
}

TEST_F(OwnFolderTest, FilesThatOthersCouldWriteAreRefused) {
  Set(base_, 0777);
  EXPECT_EQ(Write(), "written");
  struct Case {
    mode_t mode;
    uid_t user;
    const char* rule;
  };
  for (const Case& tried :
       {Case{0464, kUser, "is writable by its group (mode 0464)"},
        {0446, kUser, "is writable by everybody (mode 0446)"},
        {0444, kOther, "is of user 61185, not of 61184 or root"},
        {0444, 0, "opened"},
        {0400, kUser, "opened"}}) {
    Set(file(), tried.mode, tried.user);
    EXPECT_THAT(Read(), HasSubstr(tried.rule));
  }
}

TEST_F(OwnFolderTest, LinksAreNotFollowed) {
  Set(base_, 0777);
  EXPECT_EQ(Write(), "written");
  fs::rename(file(), own() + "/model/there");
  fs::create_symlink(own() + "/model/there", file());
  EXPECT_THAT(Read(), HasSubstr("is a symbolic link"));
  fs::rename(own() + "/model", own() + "/elsewhere");
  fs::create_symlink(own() + "/elsewhere", own() + "/model");
  EXPECT_THAT(Read(), HasSubstr("is no folder, or a link to it"));
  EXPECT_THAT(Write(), HasSubstr("is no folder, or a link to it"));
  fs::rename(own(), base_ + "/elsewhere");
  fs::create_symlink(base_ + "/elsewhere", own());
  EXPECT_THAT(Read(), HasSubstr("is no folder, or a link to it"));
}

TEST_F(OwnFolderTest, APipeOrAFolderIsNoFile) {
  const auto folder = OwnFolder::Open(base_, "", Missing::kMake);
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_EQ(::mkfifo((*folder)->PathOf("pipe").c_str(), 0600), 0);
  fs::create_directory((*folder)->PathOf("folder"));
  for (const char* name : {"pipe", "folder"}) {
    EXPECT_THAT(Message((*folder)->OpenFile(name).status()),
                HasSubstr("not a regular file"));
  }
}

TEST_F(OwnFolderTest, HasOneSecretUntilItIsDamaged) {
  const auto secret = [&] {
    const auto folder = OwnFolder::Open(base_, "", Missing::kMake);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return folder.ok() ? (*folder)->secret() : "";
  };
  const std::string first = secret();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(secret(), first);
  const std::string path = base_ + "/uid-0/secret";
  std::ofstream(path) << "short";
  EXPECT_EQ(OwnFolder::Open(base_, "", Missing::kFail).status().code(),
            StatusCode::kDataLoss);
  const std::string second = secret();
  EXPECT_EQ(second.size(), 32u);
  EXPECT_NE(second, first);
  Set(path, 0660);
  EXPECT_NE(secret(), second);
  EXPECT_EQ(ModeOf(path), 0600u);
}

TEST_F(OwnFolderTest, WhatOthersCouldWriteIsSaidInOneLine) {
  ASSERT_TRUE(OwnFolder::Open(base_, "", Missing::kMake).ok());
  const std::string path = base_ + "/uid-0";
  std::ofstream(path + "/f") << "bytes";
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  CapturedStderr log;
  ASSERT_TRUE(OwnFolder::Open(base_, "", Missing::kMake).ok());
  const std::string said = log.Text();
  EXPECT_THAT(said, HasSubstr(path + ": was writable by others"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_FALSE(fs::exists(path + "/f"));
}

}  // namespace
}  // namespace sluice::weights
