#include "common/weights/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/tensor/buffer.h"
#include "common/weights/own_folder.h"
#include "common/weights/xxh64.h"
#include "tests/testing/test_data.h"
#include "tests/weights/model_files.h"

namespace sluice::weights {
namespace {

using kernels::WeightType;
using sluice::testing::ReadFileOrDie;
using sluice::testing::TempDir;
using ::testing::HasSubstr;

constexpr char kKey[] = "layer 3 of some model";
constexpr char kName[] = "one.packed";
// Of the head, as packed_file.h tells.
constexpr size_t kSumAt = 48;
constexpr size_t kPrologueBytes = 88;

// Two weights: F32 over two pieces of sums, and BF16 over F32.
class PackedFileTest : public ::testing::TestWithParam<PackedMemory> {
 protected:
  PackedFileTest()
      : folder_(*OwnFolder::Open(dir_.path(), "", OwnFolder::Missing::kMake)) {
    AddPart(0, WeightType::kF32, 700, 512);
    AddPart(1, WeightType::kBf16, 3, 40);
    AddPart(1, WeightType::kF32, 5, 40);
  }
  void AddPart(uint64_t weight, WeightType type, int64_t rows, int64_t cols) {
    const size_t bytes = rows * cols * (type == WeightType::kF32 ? 4 : 2);
    Buffer& buffer = buffers_.emplace_back(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      buffer.data()[i] = static_cast<std::byte>(i * 7 + i / 251 + rows);
    }
    parts_.push_back({weight, type, rows, cols, buffer.data(), bytes});
  }
  std::string path() const { return folder_->PathOf(kName); }
  std::string draft() const { return path() + ".tmp"; }
  Status Write() const {
    auto locked = PackedDraft::Lock(folder_, kName);
    if (!locked.ok()) return locked.status();
    return (*locked)->Commit(kKey, parts_, {});
  }
  StatusOr<std::shared_ptr<const PackedFile>> Open(
      std::string_view key = kKey) const {
    SLUICE_ASSIGN_OR_RETURN(const auto file, folder_->OpenFile(kName));
    return PackedFile::Read(*file, key, folder_->secret(), GetParam(), {});
  }
  Status OpenStatus() const { return Open().status(); }
  void Replace(const std::string& bytes) const {
    std::filesystem::remove(path());
    std::ofstream(path(), std::ios::binary) << bytes;
  }

  // Names of all files in the folder but its secret.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_->path())) {
      const std::string name = entry.path().filename();
      if (name != "secret") names.push_back(name);
    }
    return names;
  }

  const TempDir dir_;
  const std::shared_ptr<const OwnFolder> folder_;
  std::vector<Buffer> buffers_;
  std::vector<PackedPart> parts_;
};

// Rows and columns whose bytes are more than the part has, or than 64 bits
// hold.
TEST_P(PackedFileTest, PartsOfTooFewBytesAreRefused) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{701, 512}, {kMost, kMost}, {kMost, 32}}) {
    parts_[0].rows = rows;
    parts_[0].cols = cols;
    ASSERT_TRUE(Write().ok());
    const Status status = OpenStatus();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
    EXPECT_THAT(Message(status), HasSubstr("does not fit"));
  }
}

TEST_P(PackedFileTest, GivesThePartsThatWereWritten) {
  EXPECT_EQ(OpenStatus().code(), StatusCode::kNotFound);
  ASSERT_TRUE(Write().ok());
  EXPECT_FALSE(std::filesystem::exists(draft()));
  const auto file = Open();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->bytes(), std::filesystem::file_size(path()));
  ASSERT_EQ((*file)->parts().size(), parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    const PackedPart& read = (*file)->parts()[i];
    EXPECT_EQ(read.weight, parts_[i].weight);
    EXPECT_EQ(read.type, parts_[i].type);
    EXPECT_EQ(read.rows, parts_[i].rows);
    EXPECT_EQ(read.cols, parts_[i].cols);
    ASSERT_EQ(read.bytes, parts_[i].bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.data) % 64, 0u);
    EXPECT_EQ(std::memcmp(read.data, parts_[i].data, read.bytes), 0);
  }
}

TEST_P(PackedFileTest, OfAnotherKeyIsRefused) {
  ASSERT_TRUE(Write().ok());
  for (const char* key :
       {"", "layer 3 of some mode", "layer 4 of some model"}) {
    EXPECT_EQ(Open(key).status().code(), StatusCode::kFailedPrecondition)
        << key;
  }
}

TEST_P(PackedFileTest, OfAnOlderVersionIsStale) {
  ASSERT_TRUE(Write().ok());
  std::string older = ReadFileOrDie(path());
  for (const char version : {'1', '2'}) {
    older[sizeof("sluice packed ") - 1] = version;
    Replace(older);
    EXPECT_EQ(OpenStatus().code(), StatusCode::kFailedPrecondition);
  }
}

TEST_P(PackedFileTest, CutShortAnywhereIsDataLoss) {
  ASSERT_TRUE(Write().ok());
  const std::string whole = ReadFileOrDie(path());
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{87}, size_t{88}, size_t{200}, size_t{4096},
        whole.size() / 2, whole.size() - 1}) {
    Replace(whole.substr(0, size));
    EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss) << size;
  }
  Replace(whole + '\0');
  EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss);
}

TEST_P(PackedFileTest, AFlippedBitOfTheHeadOrOfAPartIsDataLoss) {
  ASSERT_TRUE(Write().ok());
  const std::string whole = ReadFileOrDie(path());
  // All of the head: prologue, key, three parts, four sums.
  std::vector<size_t> places;
  for (size_t i = 0; i < kPrologueBytes + 24 + 3 * 48 + 4 * 8; ++i)
    places.push_back(i);
  const auto file = Open();
  for (const PackedPart& part : (*file)->parts()) {
    const std::string bytes(reinterpret_cast<const char*>(part.data),
                            part.bytes);
    const size_t begin = whole.find(bytes);
    places.insert(places.end(),
                  {begin, begin + part.bytes / 2, begin + part.bytes - 1});
  }
  for (const size_t place : places) {
    std::string damaged = whole;
    damaged[place] ^= 4;
    Replace(damaged);
    EXPECT_EQ(OpenStatus().code(), StatusCode::kDataLoss) << place;
  }
  Replace(whole);
  EXPECT_TRUE(OpenStatus().ok());
}

TEST_P(PackedFileTest, AnOpenFileOutlivesItsReplacement) {
  ASSERT_TRUE(Write().ok());
  const auto mapped = Open();
  buffers_[0].data()[0] ^= std::byte{1};
  ASSERT_TRUE(Write().ok());
  const auto second = Open();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->parts()[0].data[0], buffers_[0].data()[0]);
  EXPECT_NE((*mapped)->parts()[0].data[0], buffers_[0].data()[0]);
}

TEST_P(PackedFileTest, WhoComesSecondWaitsForTheOneWriterAndFindsItsFile) {
  auto first = PackedDraft::Lock(folder_, kName);
  ASSERT_TRUE(first.ok()) << first.status();
  std::atomic<bool> locked{false};
  Status found;
  std::thread second([&] {
    const auto draft = PackedDraft::Lock(folder_, kName);
    locked = true;
    found = draft.ok() ? OpenStatus() : draft.status();
  });
  EXPECT_FALSE(locked);
  EXPECT_TRUE((*first)->Commit(kKey, parts_, {}).ok());
  first->reset();
  second.join();
  EXPECT_TRUE(found.ok()) << found;
  EXPECT_FALSE(std::filesystem::exists(draft()));
}

TEST_P(PackedFileTest, TheLongerDraftOfAProcessThatDiedIsWrittenOver) {
  std::ofstream(draft()) << std::string(5 << 20, 'x');
  ASSERT_TRUE(Write().ok());
  EXPECT_TRUE(OpenStatus().ok());
}

TEST_P(PackedFileTest, AFullDiskIsAnErrorAndLeavesNothing) {
  ASSERT_EQ(signal(SIGXFSZ, SIG_IGN), SIG_DFL);
  rlimit whole;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &whole), 0);
  const rlimit small = {1 << 20, whole.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status written = Write();
  setrlimit(RLIMIT_FSIZE, &whole);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(written.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(written.message()), HasSubstr("File too large"));
  EXPECT_TRUE(Names().empty());
}

TEST_P(PackedFileTest, WhatStandsInTheDraftsPlaceIsReplacedAndNotFollowed) {
  const std::string elsewhere = dir_.path() + "/elsewhere";
  std::filesystem::create_symlink(elsewhere, draft());
  EXPECT_TRUE(Write().ok());
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
  ASSERT_EQ(::mkfifo(draft().c_str(), 0600), 0);
  EXPECT_TRUE(Write().ok());
  std::ofstream(draft()) << "of the group";
  ASSERT_EQ(::chmod(draft().c_str(), 0660), 0);
  EXPECT_TRUE(Write().ok());
  std::filesystem::create_directory(draft());
  EXPECT_EQ(Write().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(OpenStatus().ok());
}

// Who changes a file and makes its sums anew does not know the secret.
TEST_P(PackedFileTest, OtherWeightsWithRightSumsLackTheProof) {
  ASSERT_TRUE(Write().ok());
  std::string poisoned = ReadFileOrDie(path());
  const size_t sums = kPrologueBytes + 24 + parts_.size() * 48;
  const std::string part(reinterpret_cast<const char*>(parts_[1].data),
                         parts_[1].bytes);
  const size_t begin = poisoned.find(part);
  ASSERT_NE(begin, std::string::npos);
  poisoned[begin] ^= '\x80';
  const auto put = [&](uint64_t sum, size_t at) {
    std::memcpy(poisoned.data() + at, &sum, sizeof(sum));
  };
  // The first part has two pieces.
  put(Xxh64(poisoned.data() + begin, parts_[1].bytes), sums + 2 * 8);
  put(0, kSumAt);
  put(Xxh64(poisoned.data(), sums + 4 * 8), kSumAt);
  Replace(poisoned);
  const Status refused = OpenStatus();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(Message(refused), HasSubstr("proof"));
}

TEST_P(PackedFileTest, ALockThatIsHeldWithoutProgressIsPassedBy) {
  const auto held = PackedDraft::Lock(folder_, kName);
  ASSERT_TRUE(held.ok());
  const Status passed =
      PackedDraft::Lock(folder_, kName, std::chrono::milliseconds(50)).status();
  EXPECT_EQ(passed.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(passed), HasSubstr("has not grown for 0.05 s"));
}

TEST_P(PackedFileTest, ALockWhoseDraftGrowsIsWaitedFor) {
  auto held = PackedDraft::Lock(folder_, kName);
  ASSERT_TRUE(held.ok());
  constexpr auto kPatience = std::chrono::milliseconds(400);
  std::atomic<bool> done = false;
  Status second;
  std::thread waits([&] {
    second = PackedDraft::Lock(folder_, kName, kPatience).status();
    done = true;
  });
  // More than twice the patience, in which the draft grows ten times.
  for (int i = 0; i < 10; ++i) {
    std::ofstream(draft(), std::ios::app) << "more";
    std::this_thread::sleep_for(kPatience / 4);
  }
  EXPECT_FALSE(done);
  held->reset();
  waits.join();
  EXPECT_TRUE(second.ok()) << second;
}

INSTANTIATE_TEST_SUITE_P(Memory, PackedFileTest,
                         ::testing::Values(PackedMemory::kCopy,
                                           PackedMemory::kMap),
                         [](const auto& tested) {
                           return tested.param == PackedMemory::kCopy ? "Copy"
                                                                      : "Map";
                         });

}  // namespace
}  // namespace sluice::weights
