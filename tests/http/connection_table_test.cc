#include "common/http/connection_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::http {
namespace {

using Activity = ConnectionTable::Activity;

class ConnectionTableTest : public ::testing::Test {
 protected:
  // A connection from `address` that says its number when it is told to
  // close; its number, or -1 if it found no place.
  int Connect(ConnectionTable& table, const std::string& address,
              Activity activity = Activity::kIdle) {
    auto place = table.Take(address);
    if (!place) return -1;
    const int number = static_cast<int>(places_.size());
    place->Open([this, number] { told_.push_back(number); });
    place->Set(activity);
    places_.push_back(std::move(place));
    return number;
  }

  ConnectionTable& Make(int limit, int client_share) {
    table_ = std::make_unique<ConnectionTable>(limit, client_share);
    return *table_;
  }

  std::unique_ptr<ConnectionTable> table_;  // outlives its places
  std::vector<std::unique_ptr<ConnectionTable::Place>> places_;
  std::vector<int> told_;
};

TEST_F(ConnectionTableTest, TheOneIdleLongestMakesRoom) {
  ConnectionTable& table = Make(3, 100);
  Connect(table, "1.1.1.1");
  Connect(table, "1.1.1.2");
  Connect(table, "1.1.1.3");
  places_[0]->Set(Activity::kReading);
  places_[0]->Set(Activity::kAnswering);
  places_[0]->Set(Activity::kIdle);  // idle again: later than the others
  EXPECT_EQ(Connect(table, "1.1.1.4"), 3);
  EXPECT_EQ(told_, std::vector<int>{1});
  EXPECT_EQ(Connect(table, "1.1.1.5"), 4);
  EXPECT_EQ(told_, (std::vector<int>{1, 2}));
}

TEST_F(ConnectionTableTest, WithoutSharesHalfSentRequestsKeepNobodyOut) {
  ConnectionTable& table = Make(2, 2);
  Connect(table, "1.1.1.1", Activity::kReading);
  Connect(table, "1.1.1.1", Activity::kReading);
  EXPECT_EQ(Connect(table, "1.1.1.1"), 2) << "of the same address";
  EXPECT_EQ(told_, std::vector<int>{0});
  places_[0].reset();
  places_[2]->Set(Activity::kAnswering);
  EXPECT_EQ(Connect(table, "1.1.1.2"), 3) << "of another";
  EXPECT_EQ(told_, (std::vector<int>{0, 1}));
}

TEST_F(ConnectionTableTest, NobodyIsClosedWhileThereIsRoom) {
  ConnectionTable& table = Make(256, 1);
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(Connect(table, "1.1.1.1", Activity::kAnswering), i);
  }
  EXPECT_TRUE(told_.empty()) << "one address alone may have all";
  EXPECT_EQ(Connect(table, "1.1.1.1"), -1);
  places_.pop_back();
  EXPECT_EQ(Connect(table, "1.1.1.1"), 255);
}

TEST_F(ConnectionTableTest, WhoWaitsForAnAnswerIsNeverClosed) {
  ConnectionTable& table = Make(2, 1);
  Connect(table, "1.1.1.1", Activity::kAnswering);
  Connect(table, "1.1.1.1", Activity::kAnswering);
  EXPECT_EQ(Connect(table, "1.1.1.2"), -1);
  EXPECT_TRUE(told_.empty());
}

TEST_F(ConnectionTableTest, WhoHasMoreThanItsShareMakesRoomFirst) {
  ConnectionTable& table = Make(4, 2);
  Connect(table, "1.1.1.1");
  Connect(table, "2.2.2.2");
  Connect(table, "2.2.2.2");
  Connect(table, "2.2.2.2");
  EXPECT_EQ(Connect(table, "1.1.1.2"), 4);
  EXPECT_EQ(told_, std::vector<int>{1}) << "0 is idle longer, and alone";
}

TEST_F(ConnectionTableTest, WhoHasItsShareGetsRoomFromItsOwnAlone) {
  ConnectionTable& table = Make(4, 1);
  Connect(table, "1.1.1.1");
  Connect(table, "1.1.1.1", Activity::kReading);
  Connect(table, "2.2.2.2", Activity::kAnswering);
  Connect(table, "2.2.2.2", Activity::kAnswering);
  EXPECT_EQ(Connect(table, "2.2.2.2"), -1);
  places_[2]->Set(Activity::kReading);
  EXPECT_EQ(Connect(table, "2.2.2.2", Activity::kReading), 4);
  places_[3]->Set(Activity::kIdle);
  EXPECT_EQ(Connect(table, "2.2.2.2"), 5);
  EXPECT_EQ(told_, (std::vector<int>{2, 3}));
}

TEST_F(ConnectionTableTest, TheClientWithTheMostHalfRequestsLosesItsOldest) {
  ConnectionTable& table = Make(6, 4);
  Connect(table, "1.1.1.1", Activity::kReading);
  Connect(table, "2001:db8::1", Activity::kReading);
  Connect(table, "2001:db8::2", Activity::kReading);
  Connect(table, "2.2.2.2", Activity::kAnswering);
  Connect(table, "2.2.2.2", Activity::kAnswering);
  Connect(table, "1.1.1.1", Activity::kIdle);
  EXPECT_EQ(Connect(table, "3.3.3.3", Activity::kReading), 6);
  EXPECT_EQ(Connect(table, "3.3.3.4", Activity::kReading), 7);
  EXPECT_EQ(told_, (std::vector<int>{1, 5}))
      << "64 bits are one client; then idle ones are as many";
  EXPECT_EQ(Connect(table, "3.3.3.4", Activity::kReading), 8)
      << "as all have one, the oldest";
  EXPECT_EQ(told_, (std::vector<int>{1, 5, 0}));
  EXPECT_EQ(Connect(table, "3.3.3.5", Activity::kReading), 9);
  EXPECT_EQ(told_, (std::vector<int>{1, 5, 0, 7}));
}

TEST_F(ConnectionTableTest, AFirstByteMakesAConnectionNoYounger) {
  ConnectionTable& table = Make(2, 2);
  auto first = table.Take("1.1.1.1");
  first->Open([this] { told_.push_back(0); });
  auto second = table.Take("1.1.1.1");
  second->Open([this] { told_.push_back(1); });
  first->Set(Activity::kReading);
  EXPECT_GE(Connect(table, "1.1.1.2"), 0);
  EXPECT_EQ(told_, std::vector<int>{0});
}

TEST_F(ConnectionTableTest, HalfRequestsOfManyAddressesDriveNoIdleClientOut) {
  ConnectionTable& table = Make(100, 50);
  Connect(table, "9.9.9.9");
  for (int i = 0; i < 1000; ++i) {
    const std::string address = "1.1.1." + std::to_string(i % 5);
    const int number = Connect(table, address, Activity::kReading);
    ASSERT_GE(number, 0) << i;
    for (const int told : told_) places_[static_cast<size_t>(told)].reset();
    ASSERT_EQ(std::count(told_.begin(), told_.end(), 0), 0);
    told_.clear();
  }
}

TEST_F(ConnectionTableTest, ThoseWithTheirLastAnswerMakeRoomFirst) {
  ConnectionTable& table = Make(2, 1);
  Connect(table, "1.1.1.1", Activity::kIdle);
  Connect(table, "1.1.1.2", Activity::kDone);
  EXPECT_EQ(Connect(table, "1.1.1.3", Activity::kAnswering), 2);
  EXPECT_EQ(told_, std::vector<int>{1});
}

TEST_F(ConnectionTableTest, AConnectionIsOfTheClientBehindItsProxy) {
  ConnectionTable& table = Make(4, 4);
  for (int i = 0; i < 3; ++i) Connect(table, "10.0.0.1", Activity::kReading);
  places_[0]->SetAddress("1.1.1.1");
  places_[2]->SetAddress("1.1.1.1");
  places_[1]->SetAddress("1.1.1.2");
  Connect(table, "1.1.1.1", Activity::kReading);
  EXPECT_EQ(Connect(table, "10.0.0.1", Activity::kReading), 4);
  EXPECT_EQ(told_, std::vector<int>{0});
  places_[0].reset();
  places_[2]->SetAddress("10.0.0.1");
  EXPECT_EQ(Connect(table, "1.1.1.3", Activity::kReading), 5);
  EXPECT_EQ(told_, (std::vector<int>{0, 2})) << "older than 4";
}

TEST_F(ConnectionTableTest, ThoseThatLeaveAreBounded) {
  constexpr int kLimit = 2 * ConnectionTable::kMaxLeaving;
  ConnectionTable& table = Make(kLimit, 1000);
  for (int i = 0; i < kLimit; ++i) Connect(table, "1.1.1.1");
  int more = 0;
  while (Connect(table, "2.2.2.2") >= 0) ++more;
  EXPECT_EQ(more, ConnectionTable::kMaxLeaving);
}

}  // namespace
}  // namespace sluice::http
