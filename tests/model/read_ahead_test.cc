#include "common/model/read_ahead.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Reads of some parts each, and what became of them.
class Reads {
 public:
  explicit Reads(const std::vector<int64_t>& parts, uint64_t bytes = 1)
      : read_(parts.size()) {
    for (size_t i = 0; i < parts.size(); ++i) {
      AheadRead& read = list_.emplace_back();
      read.bytes = bytes;
      read.parts = parts[i];
      read.begin = [this, i, bytes] {
        begun_.push_back(i);
        held_ += bytes;
        most_held_ = std::max<uint64_t>(most_held_, held_);
      };
      read.read = [this, i](int64_t) {
        ++read_[i];
        return OkStatus();
      };
      read.take = [this, i, bytes, wanted = parts[i]] {
        EXPECT_EQ(read_[i], wanted);
        taken_.push_back(i);
        held_ -= bytes;
        return OkStatus();
      };
    }
  }
  std::vector<AheadRead>& list() { return list_; }
  const std::vector<size_t>& begun() const { return begun_; }
  const std::vector<size_t>& taken() const { return taken_; }
  uint64_t most_held() const { return most_held_; }

 private:
  std::vector<AheadRead> list_;
  std::vector<std::atomic<int64_t>> read_;
  std::vector<size_t> begun_;
  std::vector<size_t> taken_;
  std::atomic<uint64_t> held_ = 0;
  std::atomic<uint64_t> most_held_ = 0;
};

class ReadAheadTest : public ::testing::TestWithParam<int> {
 protected:
  static ReadAheadOptions Options(uint64_t most_bytes = 100) {
    return {GetParam(), most_bytes};
  }
};

TEST_P(ReadAheadTest, EveryReadIsWholeWhenItIsTakenInItsTurn) {
  Reads reads({3, 1, 0, 40, 2});
  EXPECT_EQ(ReadAhead(reads.list(), Options()), OkStatus());
  EXPECT_THAT(reads.begun(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(reads.taken(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(ReadAhead({}, Options()), OkStatus());
}

TEST_P(ReadAheadTest, HoldsNoMoreThanItMayExceptForOneAlone) {
  Reads few(std::vector<int64_t>(20, 2), 10);
  EXPECT_EQ(ReadAhead(few.list(), Options(35)), OkStatus());
  EXPECT_LE(few.most_held(), 30u);
  Reads large(std::vector<int64_t>(5, 2), 1000);
  EXPECT_EQ(ReadAhead(large.list(), Options(35)), OkStatus());
  EXPECT_EQ(large.most_held(), 1000u);
}

TEST_P(ReadAheadTest, TheFirstErrorInTheListsOrderIsTheAnswer) {
  Reads reads({4, 4, 4});
  reads.list()[2].read = [](int64_t) { return NotFound("later"); };
  reads.list()[1].read = [](int64_t part) -> Status {
    if (part == 1) return NotFound("first");
    return part == 3 ? NotFound("second") : OkStatus();
  };
  const Status status = ReadAhead(reads.list(), Options());
  EXPECT_EQ(Message(status), "first");
  EXPECT_THAT(reads.taken(), ElementsAre(0));
}

TEST_P(ReadAheadTest, AnErrorOfTakingEndsAll) {
  Reads reads(std::vector<int64_t>(30, 2), 10);
  reads.list()[0].take = [] { return NotFound("no room"); };
  EXPECT_EQ(Message(ReadAhead(reads.list(), Options(35))), "no room");
  EXPECT_THAT(reads.taken(), IsEmpty());
  EXPECT_LE(reads.begun().size(), 3u);
}

TEST_P(ReadAheadTest, ProgressRisesToAllParts) {
  Reads reads({7, 0});
  std::vector<int64_t> told;
  reads.list()[0].progress = [&](int64_t done) { told.push_back(done); };
  EXPECT_EQ(ReadAhead(reads.list(), Options()), OkStatus());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), 7);
}

INSTANTIATE_TEST_SUITE_P(Threads, ReadAheadTest, ::testing::Values(0, 1, 2, 5));

TEST(ReadAheadForTest, WeightsInTheHostsMemoryAreReadByWhoPacksThem) {
  BackendInfo device;
  device.shares_host_memory = true;
  EXPECT_EQ(ReadAheadFor(device).threads, 0);
  device.shares_host_memory = false;
  EXPECT_GE(ReadAheadFor(device).threads, 1);
}

}  // namespace
}  // namespace sluice
