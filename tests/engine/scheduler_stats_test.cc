// What the scheduler counts for metrics.
#include <gtest/gtest.h>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

TEST(SchedulerStatsTest, BlocksOfCachedPrefixesThatOthersGetAreEvictions) {
  SchedulerHarness harness({}, TestLimits(8));
  harness.Add(TestRequest(64, 1, 1));  // leaves four blocks that can be found
  harness.RunToEnd();
  harness.Add(TestRequest(64, 1, 1));  // finds them
  harness.RunToEnd();
  EXPECT_EQ(harness.counters().cache_evictions, 0u);
  harness.Add(TestRequest(120, 1, 2));  // eight blocks: four of them
  harness.RunToEnd();
  const uint64_t evictions = harness.counters().cache_evictions;
  EXPECT_EQ(evictions, 4u);
  harness.Attach(Epoch(2), 1);  // whose cache is empty: nothing is evicted
  harness.Add(TestRequest(64, 1, 3));
  harness.RunToEnd();
  EXPECT_EQ(harness.counters().cache_evictions, evictions);
}

TEST(SchedulerStatsTest, TheQueueHasTheBytesOfItsHistories) {
  EngineOptions options;
  options.max_running = 1;
  SchedulerHarness harness(options, TestLimits(200));
  EXPECT_EQ(harness.stats().waiting_bytes, 0);
  harness.Add(TestRequest(30, 5, 1));
  harness.Plan();
  EXPECT_EQ(harness.stats().waiting_bytes, 0) << "it runs";
  harness.Add(TestRequest(40, 5, 2));
  harness.Add(TestRequest(7, 5, 3));
  EXPECT_EQ(harness.stats().waiting, 2);
  EXPECT_EQ(harness.stats().waiting_tokens, 47);
  EXPECT_EQ(harness.stats().waiting_bytes,
            47 * static_cast<int64_t>(sizeof(TokenId)));
  harness.Commit();
  harness.RunToEnd();
}

TEST(SchedulerStatsTest, AnIntervalBeginsAtTheResultBeforeOrAtSubmission) {
  SchedulerHarness harness({}, TestLimits(200), /*num_stages=*/2);
  const TimePoint begin = Clock::now();
  const auto at = [&](int ms) { harness.set_now(begin + milliseconds(ms)); };
  at(0);
  // A prompt of two plans, which are both under way.
  harness.Add(TestRequest(400, 1));
  ASSERT_TRUE(harness.Plan().has_value());
  at(10);
  ASSERT_TRUE(harness.Plan().has_value());
  at(100);
  harness.Commit();
  at(130);
  harness.Commit();
  EXPECT_EQ(harness.counters().steps, 2u);
  EXPECT_EQ(harness.counters().step_time, milliseconds(100 + 120));
  EXPECT_EQ(harness.counters().step_interval, milliseconds(100 + 30));
  // While there is nothing to do no interval runs.
  at(1000);
  harness.Add(TestRequest(20, 1, 7));
  ASSERT_TRUE(harness.Plan().has_value());
  at(1040);
  harness.Commit();
  EXPECT_EQ(harness.counters().step_interval, milliseconds(100 + 30 + 40));
  harness.RunToEnd();
}

}  // namespace
}  // namespace sluice
