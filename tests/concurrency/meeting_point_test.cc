#include "common/concurrency/meeting_point.h"

#include <atomic>
#include <thread>
#include <vector>

#include "common/concurrency/await_change.h"
#include "gtest/gtest.h"

namespace {
std::atomic<int> yields = 0;
}  // namespace

// In the place of the system's: who yields beside threads that compute waits
// for a whole slice of theirs.
extern "C" int sched_yield() noexcept {
  ++yields;
  return 0;
}

namespace sluice {
namespace {

TEST(MeetingPointTest, ThreadsSeeWhatTheOthersWroteBefore) {
  constexpr int kRounds = 500;
  for (const int threads : {1, 2, 5}) {
    MeetingPoint meeting(threads);
    std::vector<int> written(static_cast<size_t>(threads), 0);
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&, t] {
        for (int round = 1; round <= kRounds; ++round) {
          written[static_cast<size_t>(t)] = round;
          meeting.Arrive();
          for (const int other : written) EXPECT_EQ(other, round);
          meeting.Arrive();
        }
      });
    }
    for (std::thread& thread : all) thread.join();
  }
}

TEST(MeetingPointTest, ThreadsThatMeetYieldNothing) {
  constexpr int kThreads = 12;
  MeetingPoint meeting(kThreads);
  const int before = yields;
  std::vector<std::thread> all;
  for (int t = 0; t < kThreads; ++t) {
    all.emplace_back([&, t] {
      // The others wait for longer than any spin.
      if (t == 0) std::this_thread::sleep_for(std::chrono::milliseconds{20});
      meeting.Arrive();
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(yields, before);
}

TEST(MeetingPointTest, NoThreadYieldsWhileItWaits) {
  std::atomic<uint32_t> word = 0;
  std::atomic<uint32_t> sleepers = 0;
  const int before = yields;
  std::thread waiting([&] {
    EXPECT_EQ(AwaitChange(word, 0, sleepers, std::chrono::microseconds{0}), 1u);
  });
  while (sleepers == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  word = 1;
  WakeSleepers(word, sleepers);
  waiting.join();
  EXPECT_EQ(sleepers, 0u);
  EXPECT_EQ(yields, before);
}

}  // namespace
}  // namespace sluice
