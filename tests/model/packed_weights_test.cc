// Packed weights on disk: the same bits as those just packed, whatever becomes
// of the files.
#include "common/model/packed_weights.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/device/make_backends.h"
#include "common/weights/weight_sums.h"
#include "tests/device/apart_backend.h"
#include "tests/model/packed_files.h"
#include "tests/testing/captured_stderr.h"
#include "tests/testing/test_data.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

void WriteTo(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

// A model file and two weights that are packed from it.
class PackedWeightsTest
    : public ::testing::TestWithParam<weights::PackedMemory> {
 protected:
  PackedWeightsTest()
      : backend_(std::move((*MakeBackends({.threads = 1}))[0])) {
    MakeModel(64);
  }

  void MakeModel(size_t bytes) {
    model_ = dir_.Write(
        "m.safetensors",
        Safetensors(Cat(R"({"w": {"dtype": "F32", "shape": [)", bytes / 4,
                        R"(], "data_offsets": [0, )", bytes, "]}}"),
                    std::string(bytes, '\1')));
  }
  std::string kept() const { return dir_.path() + "/kept"; }

  StatusOr<PackedWeights::Weights> Pack() {
    ++packs_;
    PackedWeights::Weights weights;
    for (const int64_t rows : {48, 5}) {
      std::vector<HostWeight> parts;
      parts.emplace_back(kernels::WeightType::kF32, rows, 64);
      for (int64_t i = 0; i < rows * 64; ++i) {
        parts[0].data.as<float>()[i] = static_cast<float>(i + rows);
      }
      weights.push_back(backend_->Pack(std::move(parts)));
    }
    return weights;
  }
  // Starts over, and checks what Load returns.
  struct Loaded {
    bool from_file = false;
    std::string log;
  };
  Loaded Load(const std::string& where,
              const PackedWeights::Group& group = {"layer-0", "w\n"}) {
    CapturedStderr log;
    const auto file = weights::OpenModel(model_);
    EXPECT_TRUE(file.ok()) << file.status();
    const weights::ModelDigest digest;
    if (with_sums_) {
      (*file)->CheckAgainst(*weights::ComputeWeightSums(**file, digest));
    }
    PackedOptions options = {where, GetParam(), bounds_, patience_};
    PackedWeights packed(options, 1, **file, "digest");
    const auto loaded =
        packed.Load(group, *backend_, [this] { return Pack(); });
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return {};
    EXPECT_EQ(loaded->size(), 2u);
    for (const auto& weight : *loaded) {
      const auto* elements =
          static_cast<const float*>(weight->parts[0].data.data());
      EXPECT_EQ(weight->cols, 64);
      for (int64_t i = 0; i < weight->rows * 64; ++i) {
        EXPECT_EQ(elements[i], static_cast<float>(i + weight->rows));
      }
    }
    return {(*loaded)[0]->memory != nullptr, log.Text()};
  }

  const TempDir dir_;
  const std::unique_ptr<Backend> backend_;
  std::string model_;
  int packs_ = 0;
  bool with_sums_ = false;  // the model's pieces are checked
  // A disk may be nearly full while tests run.
  weights::PackedBounds bounds_ = {std::nullopt, 0, 0};
  Duration patience_ = weights::kPackedPatience;
};

TEST_P(PackedWeightsTest, AreWrittenOnceAndReadThenAndLater) {
  EXPECT_TRUE(Load(kept()).from_file);
  EXPECT_TRUE(Load(kept()).from_file);
  EXPECT_EQ(packs_, 1);
  EXPECT_TRUE(Load(kept(), {"layer-0", "other rows\n"}).from_file);
  EXPECT_EQ(packs_, 2);
  EXPECT_EQ(FilesIn(kept()).size(), 2u);
}

TEST_P(PackedWeightsTest, OffKeepsNothing) {
  EXPECT_FALSE(Load("off").from_file);
  EXPECT_FALSE(Load("").from_file);
  EXPECT_EQ(packs_, 2);
  EXPECT_TRUE(FilesIn(dir_.path()).empty());
}

TEST_P(PackedWeightsTest, OfAModelThatHasChangedAreMadeAnew) {
  Load(kept());
  const auto time = fs::last_write_time(model_);
  fs::last_write_time(model_, time + std::chrono::milliseconds(1));
  const Loaded later = Load(kept());
  EXPECT_THAT(later.log, HasSubstr("another model, cut or layout"));
  EXPECT_EQ(packs_, 2);
  MakeModel(128);
  fs::last_write_time(model_, time + std::chrono::milliseconds(1));
  EXPECT_TRUE(Load(kept()).from_file);
  EXPECT_EQ(packs_, 3);
  EXPECT_TRUE(Load(kept()).from_file);
  EXPECT_EQ(packs_, 3);
  EXPECT_EQ(FilesIn(kept()).size(), 1u);
}

TEST_P(PackedWeightsTest, OfADamagedFileOrAnotherGroupsAreMadeAnew) {
  Load(kept());
  Load(kept(), {"layer-1", "w of layer 1\n"});
  const std::vector<fs::path> files = FilesIn(kept());
  ASSERT_EQ(files.size(), 2u);
  const std::string whole = ReadFileOrDie(files[0]);
  std::string flipped = whole;
  flipped.back() ^= 1;
  std::string head = whole;
  head[20] ^= 1;
  for (const std::string& bytes :
       {whole.substr(0, whole.size() / 2), flipped, head, std::string(),
        ReadFileOrDie(files[1])}) {
    WriteTo(files[0], bytes);
    packs_ = 0;
    const Loaded again = Load(kept());
    EXPECT_TRUE(again.from_file);
    EXPECT_THAT(again.log, HasSubstr("it is made anew"));
    EXPECT_EQ(packs_, 1);
    EXPECT_EQ(ReadFileOrDie(files[0]), whole);
  }
}

TEST_P(PackedWeightsTest, OfOtherSumsOfThePiecesAreMadeAnew) {
  Load(kept());
  with_sums_ = true;
  EXPECT_THAT(Load(kept()).log, HasSubstr("it is made anew"));
  EXPECT_TRUE(Load(kept()).from_file);
  EXPECT_EQ(packs_, 2);
  // Another byte, of a file that looks as it did.
  const auto time = fs::last_write_time(model_);
  std::fstream(model_, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('\2');
  fs::last_write_time(model_, time);
  EXPECT_THAT(Load(kept()).log, HasSubstr("it is made anew"));
  EXPECT_EQ(packs_, 3);
}

TEST_P(PackedWeightsTest, OfAFileThatOthersMayWriteAreMadeAnewInItsPlace) {
  Load(kept());
  const fs::path file = FilesIn(kept()).at(0);
  fs::permissions(file, fs::perms(0460));
  const Loaded again = Load(kept());
  EXPECT_TRUE(again.from_file);
  EXPECT_THAT(again.log, HasSubstr("is writable by its group (mode 0460); it "
                                   "is made anew"));
  EXPECT_EQ(packs_, 2);
  const fs::path there = file.string() + "-there";
  fs::rename(file, there);
  fs::create_symlink(there, file);
  EXPECT_THAT(Load(kept()).log,
              HasSubstr("is a symbolic link; it is made anew"));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file)));
  EXPECT_EQ(packs_, 3);
}

TEST_P(PackedWeightsTest, StayInMemoryBelowAFolderThatIsALink) {
  fs::create_directories(kept());
  fs::create_directory_symlink(dir_.path(), Cat(kept(), "/uid-", geteuid()));
  const Loaded loaded = Load(kept());
  EXPECT_FALSE(loaded.from_file);
  EXPECT_THAT(loaded.log, HasSubstr("is no folder, or a link to it"));
  EXPECT_EQ(std::count(loaded.log.begin(), loaded.log.end(), '\n'), 1);
}

TEST_P(PackedWeightsTest, StayInMemoryWhenTheirLockIsHeldWithoutProgress) {
  Load(kept());
  const fs::path file = FilesIn(kept()).at(0);
  fs::remove(file);
  const int held = open((file.string() + ".tmp").c_str(),
                        O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  patience_ = std::chrono::milliseconds(50);
  const Loaded loaded = Load(kept());
  EXPECT_FALSE(loaded.from_file);
  EXPECT_THAT(loaded.log, HasSubstr("its lock is held, and it has not grown"));
  close(held);
  EXPECT_TRUE(Load(kept()).from_file);
}

TEST_P(PackedWeightsTest, StayInMemoryWhereNothingCanBeWritten) {
  dir_.Write("kept", "a file in the folder's place");
  const Loaded loaded = Load(kept());
  EXPECT_FALSE(loaded.from_file);
  EXPECT_THAT(loaded.log, HasSubstr("are not kept in"));
  EXPECT_THAT(loaded.log, HasSubstr("every start packs them"));
}

TEST_P(PackedWeightsTest, StayInMemoryWhenTheDiskIsFull) {
  ASSERT_EQ(signal(SIGXFSZ, SIG_IGN), SIG_DFL);
  rlimit whole;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &whole), 0);
  const rlimit small = {8192, whole.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Loaded loaded = Load(kept());
  setrlimit(RLIMIT_FSIZE, &whole);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_FALSE(loaded.from_file);
  EXPECT_THAT(loaded.log, HasSubstr("cannot be written: File too large"));
  EXPECT_TRUE(FilesIn(kept()).empty());
  EXPECT_TRUE(Load(kept()).from_file);
}

TEST_P(PackedWeightsTest, OfTwoStartsAtOnceOneIsTheWriter) {
  const auto file = weights::OpenModel(model_);
  std::atomic<int> packs{0};
  std::atomic<int> from_file{0};
  const auto load = [&] {
    const auto backend = std::move((*MakeBackends({.threads = 1}))[0]);
    PackedWeights packed({kept(), GetParam(), bounds_}, 1, **file, "digest");
    for (int i = 0; i < 20; ++i) {
      const auto weights = packed.Load(
          {"layer", Cat(i)}, *backend,
          [&]() -> StatusOr<PackedWeights::Weights> {
            ++packs;
            PackedWeights::Weights made;
            std::vector<HostWeight> parts;
            parts.emplace_back(kernels::WeightType::kF32, 16, 64);
            std::memset(parts[0].data.data(), i, parts[0].data.size());
            made.push_back(backend->Pack(std::move(parts)));
            return made;
          });
      EXPECT_TRUE(weights.ok()) << weights.status();
      if (weights.ok() && weights->at(0)->memory != nullptr) ++from_file;
    }
  };
  std::thread other(load);
  load();
  other.join();
  EXPECT_EQ(packs, 20);
  EXPECT_EQ(from_file, 40);
  EXPECT_EQ(FilesIn(kept()).size(), 20u);
}

TEST_P(PackedWeightsTest, TakeNoMoreThanTheirBoundAndTheOldestGoes) {
  for (const char* name : {"layer-0", "layer-1"}) Load(kept(), {name, name});
  const uint64_t each = fs::file_size(FilesIn(kept()).at(0));
  bounds_.max_bytes = 2 * each + each / 2;
  EXPECT_TRUE(Load(kept(), {"layer-2", "layer-2"}).from_file);
  ASSERT_EQ(FilesIn(kept()).size(), 2u);
  EXPECT_THAT(FilesIn(kept()).at(0).string(), HasSubstr("layer-1"));
  bounds_.max_bytes = each - 1;
  const Loaded none = Load(kept(), {"layer-3", "layer-3"});
  EXPECT_FALSE(none.from_file);
  EXPECT_THAT(none.log, ContainsRegex("may be kept .--packed-gb"));
  EXPECT_EQ(FilesIn(kept()).size(), 2u);
}

TEST_P(PackedWeightsTest, ThatAreInMemoryStayOnDisk) {
  const auto file = weights::OpenModel(model_);
  PackedWeights::Weights held;
  {
    PackedWeights packed({kept(), GetParam(), bounds_}, 1, **file, "digest");
    held = *packed.Load({"layer-0", ""}, *backend_, [this] { return Pack(); });
  }
  bounds_.max_bytes = fs::file_size(FilesIn(kept()).at(0));
  EXPECT_FALSE(Load(kept(), {"layer-1", ""}).from_file);
  held.clear();
  EXPECT_TRUE(Load(kept(), {"layer-1", ""}).from_file);
  EXPECT_EQ(FilesIn(kept()).size(), 1u);
}

TEST(PackedBoundTest, TheFlagIsAPositiveNumberOfGigabytes) {
  EXPECT_FALSE((*ParsePackedGb(0)).has_value());
  EXPECT_EQ(**ParsePackedGb(1.5), 1500000000u);
  for (const double gigabytes : {-1.0, 1e7, std::nan("")}) {
    EXPECT_EQ(ParsePackedGb(gigabytes).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST_P(PackedWeightsTest, AutoIsBesideALargeModelOrInTheUsersCache) {
  const std::string cache = dir_.path() + "/cache";
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  EXPECT_FALSE(Load("auto").from_file);
  EXPECT_TRUE(FilesIn(dir_.path()).empty());  // a small model
  MakeModel(kLeastPackedModel);
  EXPECT_TRUE(Load("auto").from_file);
  const std::string beside = model_ + ".sluice.packed";
  EXPECT_EQ(FilesIn(beside).size(), 1u);
  EXPECT_FALSE(fs::exists(cache));
  fs::remove_all(beside);
  std::ofstream(beside) << "a file in the folder's place";
  const Loaded loaded = Load("auto");
  EXPECT_TRUE(loaded.from_file);
  EXPECT_THAT(loaded.log, HasSubstr("are not kept in " + beside));
  EXPECT_EQ(FilesIn(cache).size(), 1u);
  packs_ = 0;
  EXPECT_THAT(Load("auto").log, Not(HasSubstr("are not kept")));
  EXPECT_EQ(packs_, 0);
  unsetenv("XDG_CACHE_HOME");
}

TEST_P(PackedWeightsTest, OfADeviceWithMemoryOfItsOwnAreNotKept) {
  const auto apart = std::move((*MakeApartBackends({.threads = 1}))[0]);
  const auto file = weights::OpenModel(model_);
  PackedWeights packed({kept(), GetParam()}, 1, **file, "digest");
  const auto loaded =
      packed.Load({"layer-0", ""}, *apart, [this] { return Pack(); });
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE(fs::exists(kept()));
}

INSTANTIATE_TEST_SUITE_P(Memory, PackedWeightsTest,
                         ::testing::Values(weights::PackedMemory::kCopy,
                                           weights::PackedMemory::kMap),
                         [](const auto& tested) {
                           return tested.param == weights::PackedMemory::kCopy
                                      ? "Copy"
                                      : "Map";
                         });

}  // namespace
}  // namespace sluice::testing
