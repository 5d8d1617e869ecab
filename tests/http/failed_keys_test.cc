#include "common/http/failed_keys.h"

#include <gtest/gtest.h>

#include "common/base/cat.h"

namespace sluice::http {
namespace {

using std::chrono::seconds;

constexpr uint64_t kGood = 7;
constexpr uint64_t kGuess = 8;

class FailedKeysTest : public ::testing::Test {
 protected:
  // How many guesses in a row `peer` has.
  int Guesses(std::string_view peer) {
    int guesses = 0;
    while (keys_.MayTry(peer, kGuess, now_) && guesses < 1000) {
      keys_.OnFailure(peer, now_);
      ++guesses;
    }
    return guesses;
  }

  FailedKeys keys_;
  TimePoint now_ = Clock::now();
};

TEST_F(FailedKeysTest, GuessesAreUsedUpAndComeBackOneASecond) {
  EXPECT_EQ(Guesses("1.2.3.4"), 20);
  now_ += seconds(3);
  EXPECT_EQ(Guesses("1.2.3.4"), 3);
  now_ += std::chrono::hours(1);
  EXPECT_EQ(Guesses("1.2.3.4"), 20);
}

TEST_F(FailedKeysTest, OthersAreNotSlowedDown) {
  Guesses("1.2.3.4");
  EXPECT_TRUE(keys_.MayTry("1.2.3.5", kGood, now_));
}

TEST_F(FailedKeysTest, AKeyThatCameInBeforeGoesOn) {
  keys_.OnSuccess("1.2.3.4", kGood, now_);
  Guesses("1.2.3.4");
  EXPECT_TRUE(keys_.MayTry("1.2.3.4", kGood, now_));
  EXPECT_FALSE(keys_.MayTry("1.2.3.4", kGuess, now_));
}

TEST_F(FailedKeysTest, ANetworkOfIPv6IsOneClient) {
  EXPECT_EQ(Guesses("2001:db8:1:2::1"), 20);
  EXPECT_EQ(Guesses("2001:db8:1:2:ffff::9"), 0);
  EXPECT_EQ(Guesses("2001:db8:1:3::1"), 20);
  EXPECT_EQ(Guesses("::ffff:1.2.3.4"), 20);
  EXPECT_EQ(Guesses("1.2.3.4"), 0);
  EXPECT_EQ(ClientOfAddress("fe80::1%eth0"), "fe80::/64");
  EXPECT_EQ(ClientOfAddress("unknown"), "unknown");
}

TEST_F(FailedKeysTest, OnlyTheLatestClientsAreKnown) {
  Guesses("1.2.3.4");
  for (int i = 0; i < 4096; ++i) {
    keys_.OnFailure(Cat("10.0.", i / 256, ".", i % 256), now_);
  }
  EXPECT_TRUE(keys_.MayTry("1.2.3.4", kGuess, now_)) << "forgotten";
}

}  // namespace
}  // namespace sluice::http
