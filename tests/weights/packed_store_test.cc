// What packed weights take on disk: bounds, who goes first, who never goes.
#include "common/weights/packed_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

namespace fs = std::filesystem;
using sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Missing = OwnFolder::Missing;

constexpr char kKey[] = "of some model";
constexpr int64_t kRows = 1000;  // of 64 columns: 256,000 bytes

class PackedStoreTest : public ::testing::Test {
 protected:
  using Folder = std::shared_ptr<const OwnFolder>;

  Folder FolderOf(const std::string& model) const {
    return *OwnFolder::Open(dir_.path(), model, Missing::kMake);
  }
  // Bytes of a file that Keep writes.
  uint64_t file_bytes() const { return PackedBytes(kKey, Parts()); }
  std::vector<PackedPart> Parts() const {
    return {{0, kernels::WeightType::kF32, kRows, 64,
             reinterpret_cast<const std::byte*>(rows_.data()), rows_.size()}};
  }
  // Writes a file within the bounds; later files are used later.
  Status Keep(const Folder& folder, const std::string& name) {
    auto draft = PackedDraft::Lock(folder, name);
    if (!draft.ok()) return draft.status();
    SLUICE_RETURN_IF_ERROR(MakeRoom(*folder, bounds_, file_bytes(), **draft));
    SLUICE_RETURN_IF_ERROR((*draft)->Commit(kKey, Parts(), {}));
    const timespec used[2] = {{++clock_, 0}, {clock_, 0}};
    EXPECT_EQ(::utimensat(folder->descriptor(), name.c_str(), used, 0), 0);
    return OkStatus();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const KeptFile& file : ListPacked(dir_.path())) {
      names.push_back(fs::path(file.path).filename());
    }
    return names;
  }
  void Use(UseMarks& marks, const Folder& folder, const std::string& name) {
    const auto file = folder->OpenFile(name);
    ASSERT_TRUE(file.ok()) << file.status();
    marks.Mark(name, **file);
  }

  const TempDir dir_;
  const std::string rows_ = std::string(kRows * 64 * 4, '\1');
  // A disk may be nearly full while tests run.
  PackedBounds bounds_ = {.max_bytes = std::nullopt,
                          .model_bytes = 3 * file_bytes(),
                          .free_share = 0};
  time_t clock_ = 1000;
};

TEST_F(PackedStoreTest, WhatWasNotUsedForLongestGoesFirst) {
  const Folder folder = FolderOf("m");
  for (const char* name : {"a.packed", "b.packed", "c.packed"}) {
    ASSERT_TRUE(Keep(folder, name).ok());
  }
  EXPECT_THAT(Names(), ElementsAre("a.packed", "b.packed", "c.packed"));
  ASSERT_TRUE(Keep(folder, "d.packed").ok());
  EXPECT_THAT(Names(), ElementsAre("b.packed", "c.packed", "d.packed"));
  // Reading is use.
  {
    UseMarks marks(*folder);
    Use(marks, folder, "b.packed");
  }
  ASSERT_TRUE(Keep(folder, "e.packed").ok());
  EXPECT_THAT(Names(), ElementsAre("b.packed", "d.packed", "e.packed"));
}

TEST_F(PackedStoreTest, AFileInItsOwnPlaceNeedsNoOtherRoom) {
  const Folder folder = FolderOf("m");
  for (const char* name : {"a.packed", "b.packed", "c.packed", "a.packed"}) {
    ASSERT_TRUE(Keep(folder, name).ok());
  }
  EXPECT_THAT(Names(), ElementsAre("a.packed", "b.packed", "c.packed"));
}

TEST_F(PackedStoreTest, WhatALiveProcessUsesNeverGoes) {
  const Folder folder = FolderOf("m");
  for (const char* name : {"a.packed", "b.packed", "c.packed"}) {
    ASSERT_TRUE(Keep(folder, name).ok());
  }
  int ready[2];
  int end[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(end), 0);
  const pid_t user = ::fork();
  if (user == 0) {
    UseMarks marks(*folder);
    for (const char* name : {"a.packed", "b.packed"}) {
      const auto file = folder->OpenFile(name);
      if (file.ok()) marks.Mark(name, **file);
    }
    char byte = 0;
    ::close(end[1]);
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(end[0], &byte, 1);  // until it is killed
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_TRUE(Keep(folder, "d.packed").ok());
  EXPECT_THAT(Names(), ElementsAre("a.packed", "b.packed", "d.packed"));
  for (const KeptFile& file : ListPacked(dir_.path())) {
    EXPECT_EQ(file.in_use, !file.path.ends_with("d.packed")) << file.path;
  }
  // Two of three are in use: no room for more than another one.
  bounds_.model_bytes = 2 * file_bytes();
  const Status refused = Keep(folder, "e.packed");
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused), HasSubstr("--packed-gb"));
  EXPECT_THAT(Names(), ElementsAre("a.packed", "b.packed", "d.packed"));
  EXPECT_EQ(PrunePacked(dir_.path(), {0, 1e12}).size(), 1u);
  ::kill(user, SIGKILL);
  ::waitpid(user, nullptr, 0);
  ASSERT_TRUE(Keep(folder, "e.packed").ok());
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) ::close(fd);
  EXPECT_EQ(PrunePacked(dir_.path(), {0, 1e12}).size(), 2u);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(PackedStoreTest, ABoundOfAllModelsCountsAllAndOneOfAModelItsOwn) {
  const Folder first = FolderOf("first");
  const Folder second = FolderOf("second");
  for (const char* name : {"a.packed", "b.packed", "c.packed"}) {
    ASSERT_TRUE(Keep(first, name).ok());
  }
  ASSERT_TRUE(Keep(second, "d.packed").ok());
  EXPECT_EQ(Names().size(), 4u);
  bounds_.max_bytes = 2 * file_bytes();
  ASSERT_TRUE(Keep(second, "e.packed").ok());
  EXPECT_THAT(Names(), ElementsAre("d.packed", "e.packed"));
  bounds_.max_bytes = file_bytes() - 1;
  EXPECT_EQ(Keep(second, "f.packed").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Names().size(), 2u);
}

TEST_F(PackedStoreTest, AShareOfTheDiskStaysFree) {
  const Folder folder = FolderOf("m");
  ASSERT_TRUE(Keep(folder, "a.packed").ok());
  bounds_.free_share = 1;  // which no disk has
  const Status refused = Keep(folder, "b.packed");
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused), HasSubstr("of the disk are free"));
  EXPECT_THAT(Names(), ElementsAre("a.packed"));
}

TEST_F(PackedStoreTest, ADraftThatIsWrittenIsInUseAndADeadOneGoes) {
  const Folder folder = FolderOf("m");
  auto draft = PackedDraft::Lock(folder, "a.packed");
  ASSERT_TRUE(draft.ok());
  ASSERT_TRUE(MakeRoom(*folder, bounds_, 2 * file_bytes(), **draft).ok());
  EXPECT_EQ(ListPacked(dir_.path()).at(0).bytes, 2 * file_bytes());
  EXPECT_TRUE(ListPacked(dir_.path()).at(0).in_use);
  EXPECT_THAT(PrunePacked(dir_.path(), {0, 1e12}), IsEmpty());
  // What is promised to it is taken.
  ASSERT_TRUE(Keep(folder, "b.packed").ok());
  ASSERT_TRUE(Keep(folder, "c.packed").ok());
  EXPECT_THAT(Names(), ElementsAre("a.packed.tmp", "c.packed"));
  draft->reset();
  std::ofstream(folder->PathOf("z.packed.tmp")) << std::string(1000, 'x');
  EXPECT_FALSE(ListPacked(dir_.path()).at(1).in_use);
  EXPECT_EQ(PrunePacked(dir_.path(), {0, 1e12}).size(), 2u);
}

TEST_F(PackedStoreTest, PruningLeavesWhatWasUsedLately) {
  const Folder folder = FolderOf("");
  for (const char* name : {"a.packed", "b.packed"}) {
    ASSERT_TRUE(Keep(folder, name).ok());
  }
  const double now = static_cast<double>(clock_) + 10;
  const auto gone = PrunePacked(dir_.path(), {10.5, now});
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].below, Cat("uid-", ::geteuid(), "/a.packed"));
  EXPECT_EQ(gone[0].bytes, file_bytes());
  EXPECT_THAT(Names(), ElementsAre("b.packed"));
  EXPECT_THAT(ListPacked(dir_.path() + "/nowhere"), IsEmpty());
}

TEST_F(PackedStoreTest, AUsersFoldersAreThoseOfTheModelsInTheirCacheToo) {
  const std::string models = dir_.path() + "/sluice/models";
  fs::create_directories(models + "/a.gguf.sluice.packed");
  fs::create_directories(models + "/b.gguf");
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("XDG_CACHE_HOME", dir_.path().c_str(), 1);
  EXPECT_THAT(UsersPackedFolders(),
              ElementsAre(models, models + "/a.gguf.sluice.packed",
                          dir_.path() + "/sluice/packed"));
  ::setenv("XDG_CACHE_HOME", kept.c_str(), 1);
  if (before == nullptr) ::unsetenv("XDG_CACHE_HOME");
}

TEST_F(PackedStoreTest, LinksAndFilesOfOtherNamesStay) {
  const Folder folder = FolderOf("m");
  dir_.Write("x.packed", "of an earlier version");
  fs::create_symlink(dir_.path() + "/x.packed", folder->PathOf("l.packed"));
  std::ofstream(folder->PathOf("notes")) << "of the user";
  fs::create_directory(dir_.path() + "/elsewhere");
  std::ofstream(dir_.path() + "/elsewhere/y.packed") << "of others";
  fs::create_symlink(dir_.path() + "/elsewhere", dir_.path() + "/uid-7");
  EXPECT_THAT(PrunePacked(dir_.path(), {0, 1e12}), IsEmpty());
  EXPECT_TRUE(fs::exists(folder->PathOf("notes")));
}

}  // namespace
}  // namespace sluice::weights
