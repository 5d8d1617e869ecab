#include "common/http/failed_keys.h"

#include <gtest/gtest.h>

#include "common/base/cat.h"

namespace sluice::http {
namespace {

using std::chrono::seconds;

class FailedKeysTest : public ::testing::Test {
 protected:
  // How many unknown keys in a row `peer` may send.
  int Guesses(std::string_view peer) {
    int guesses = 0;
    while (keys_.OnFailure(peer, now_) == Duration::zero() && guesses < 1000) {
      ++guesses;
    }
    return guesses;
  }

  FailedKeys keys_;
  TimePoint now_ = Clock::now();
};

TEST_F(FailedKeysTest, TenWithinTenSecondsGetTheirAnswer) {
  EXPECT_EQ(Guesses("1.2.3.4"), 10);
  now_ += seconds(3);
  EXPECT_EQ(keys_.OnFailure("1.2.3.4", now_), seconds(7));
  now_ += seconds(7);
  EXPECT_EQ(Guesses("1.2.3.4"), 10) << "the refused ones count nothing";
  for (int i = 0; i < 100; ++i) {
    now_ += seconds(1);
    keys_.OnFailure("1.2.3.5", now_);
    EXPECT_EQ(keys_.OnFailure("1.2.3.6", now_), Duration::zero())
        << "one a second goes on";
  }
}

TEST_F(FailedKeysTest, OthersAreNotSlowedDown) {
  Guesses("1.2.3.4");
  EXPECT_EQ(Guesses("1.2.3.5"), 10);
}

TEST_F(FailedKeysTest, ANetworkOfIPv6IsOneClient) {
  EXPECT_EQ(Guesses("2001:db8:1:2::1"), 10);
  EXPECT_EQ(Guesses("2001:db8:1:2:ffff::9"), 0);
  EXPECT_EQ(Guesses("2001:db8:1:3::1"), 10);
  EXPECT_EQ(Guesses("::ffff:1.2.3.4"), 10);
  EXPECT_EQ(Guesses("1.2.3.4"), 0);
  EXPECT_EQ(ClientOfAddress("fe80::1%eth0"), "fe80::/64");
  EXPECT_EQ(ClientOfAddress("unknown"), "unknown");
}

TEST_F(FailedKeysTest, OnlyTheLatestClientsAreKnown) {
  Guesses("1.2.3.4");
  for (int i = 0; i < 4096; ++i) {
    keys_.OnFailure(Cat("10.0.", i / 256, ".", i % 256), now_);
  }
  EXPECT_EQ(Guesses("1.2.3.4"), 10) << "forgotten";
}

}  // namespace
}  // namespace sluice::http
