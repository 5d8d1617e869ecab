// A long prompt beside decodes: neither holds up the other.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

PlanLimits LongLimits() {
  PlanLimits limits = TestLimits(2000);
  limits.max_context = 9000;
  return limits;
}

// Runs one plan after another on a machine of one stage that needs 20 ms per
// step and 0.5 ms per prompt token.
class PacedRun {
 public:
  explicit PacedRun(SchedulerHarness& harness) : harness_(harness) {
    harness_.set_now(now_);
  }
  // Runs a step; false if there was none.
  bool Step() {
    plan_ = harness_.Plan();
    if (!plan_) return false;
    int32_t prompt = 0;
    for (const Chunk& chunk : plan_->chunks) {
      if (chunk.tokens.size() > 1) {
        prompt += static_cast<int32_t>(chunk.tokens.size());
      }
    }
    last_ = milliseconds(20) + prompt * microseconds(500);
    now_ += last_;
    harness_.set_now(now_);
    return harness_.Commit();
  }
  Duration last() const { return last_; }
  TimePoint now() const { return now_; }
  int32_t tokens_of(SequenceId id) const {
    for (const Chunk& chunk : plan_->chunks) {
      if (chunk.sequence == id)
        return static_cast<int32_t>(chunk.tokens.size());
    }
    return 0;
  }

 private:
  SchedulerHarness& harness_;
  TimePoint now_ = Clock::now();
  std::optional<StepPlan> plan_;
  Duration last_{};
};

TEST(SchedulerPaceTest, ALongPromptDoesNotStallADecodeAndStillComesThrough) {
  SchedulerHarness alone({}, LongLimits());
  PacedRun alone_run(alone);
  const TimePoint alone_begin = alone_run.now();
  const SequenceId lone = alone.Add(TestRequest(8000, 1, 2));
  while (alone.outcome(lone).ends.empty()) ASSERT_TRUE(alone_run.Step());
  const Duration alone_time = alone_run.now() - alone_begin;

  SchedulerHarness harness({}, LongLimits());
  PacedRun run(harness);
  const SequenceId talker = harness.Add(TestRequest(10, 900, 1));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(run.Step());
  EXPECT_EQ(run.last(), milliseconds(20));
  const SequenceId reader = harness.Add(TestRequest(8000, 1, 2));
  const TimePoint begin = run.now();
  std::vector<Duration> gaps;
  while (harness.outcome(reader).ends.empty()) {
    ASSERT_TRUE(run.Step());
    EXPECT_EQ(run.tokens_of(talker), 1) << "a token with every step";
    gaps.push_back(run.last());
  }
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LE(gaps[gaps.size() / 2], milliseconds(30));
  EXPECT_LE(gaps[gaps.size() * 99 / 100], milliseconds(60));
  EXPECT_LE(Seconds(run.now() - begin), 4 * Seconds(alone_time));
  harness.End(talker, FinishReason::kCancelled);
  harness.RunToEnd();
}

TEST(SchedulerPaceTest, ACrowdOfShortPromptsComesThrough) {
  SchedulerHarness harness({}, LongLimits());
  PacedRun run(harness);
  const SequenceId talker = harness.Add(TestRequest(10, 900, 1));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(run.Step());
  const TimePoint begin = run.now();
  std::vector<SequenceId> short_prompts;
  for (uint64_t i = 0; i < 32; ++i) {
    short_prompts.push_back(harness.Add(TestRequest(256, 1, 10 + i)));
  }
  while (harness.outcome(short_prompts.back()).ends.empty()) {
    ASSERT_TRUE(run.Step());
    EXPECT_LE(run.last(), milliseconds(20 * 5));
  }
  // Alone they take 32 * 128 ms and a few steps' 20 ms.
  EXPECT_LE(run.now() - begin, 2 * 32 * milliseconds(128));
  harness.End(talker, FinishReason::kCancelled);
  harness.RunToEnd();
}

TEST(SchedulerPaceTest, WhenNobodyDecodesAPlanIsAsLargeAsMayBe) {
  SchedulerHarness harness({}, LongLimits());
  PacedRun run(harness);
  const SequenceId talker = harness.Add(TestRequest(10, 50, 1));
  const SequenceId reader = harness.Add(TestRequest(4000, 2, 2));
  while (harness.outcome(talker).ends.empty()) ASSERT_TRUE(run.Step());
  ASSERT_TRUE(harness.outcome(reader).ends.empty());
  ASSERT_TRUE(run.Step());
  EXPECT_EQ(run.tokens_of(reader), EngineOptions().prefill_chunk);
  harness.RunToEnd();
}

TEST(SchedulerPaceTest, AShortPromptIsNotBehindLongOnes) {
  SchedulerHarness harness({}, LongLimits());
  PacedRun run(harness);
  for (uint64_t i = 0; i < 3; ++i) harness.Add(TestRequest(4000, 1, i));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(run.Step());
  const SequenceId late = harness.Add(TestRequest(100, 1, 9));
  int steps = 0;
  while (harness.outcome(late).ends.empty()) {
    ASSERT_TRUE(run.Step());
    ++steps;
  }
  EXPECT_LE(steps, 3);
  harness.RunToEnd();
}

TEST(SchedulerPaceTest, ALongPromptIsNotBehindACrowdOfShortOnes) {
  SchedulerHarness harness({}, LongLimits());
  PacedRun run(harness);
  const SequenceId early = harness.Add(TestRequest(4000, 1, 1));
  uint64_t seed = 10;
  int steps = 0;
  while (harness.outcome(early).ends.empty()) {
    while (harness.num_waiting() < 20) {
      harness.Add(TestRequest(100, 1, ++seed));
    }
    ASSERT_TRUE(run.Step());
    ++steps;
  }
  // Half of each step's 512 tokens at least.
  EXPECT_LE(steps, 4000 / 256 + 2);
}

TEST(SchedulerPaceTest, APlanWhoseDecodesWerePreemptedCountsAsNone) {
  // Two plans in flight, tiny pool: decodes taken back out of a plan must
  // not keep others from decoding.
  EngineOptions options;
  options.prefix_cache = false;
  options.min_decode_batch = 1;
  SchedulerHarness harness(options, TestLimits(6), /*num_stages=*/2);
  const SequenceId old = harness.Add(TestRequest(40, 40, 1));
  const SequenceId young = harness.Add(TestRequest(32, 40, 2));
  harness.RunToEnd();
  EXPECT_GT(harness.counters().preemptions, 0u);
  for (const SequenceId id : {old, young}) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), 50));
  }
}

TEST(SchedulerPaceTest, TheQueuesStateIsWhatAPromiseNeeds) {
  EngineOptions options;
  options.max_running = 1;
  SchedulerHarness harness(options, LongLimits());
  PacedRun run(harness);
  EXPECT_FALSE(harness.scheduler().Queue().rates_known);
  for (uint64_t i = 0; i < 3; ++i) {
    harness.Add(TestRequest(200, 20, i));
    while (run.Step()) {
    }
  }
  harness.Add(TestRequest(200, 20, 5));
  GenerateRequest waiting = TestRequest(300, 20, 6);
  waiting.client = "waits";
  run.Step();
  harness.Add(waiting);
  run.Step();
  const QueueState queue = harness.scheduler().Queue();
  EXPECT_TRUE(queue.rates_known);
  EXPECT_EQ(queue.free_places, 0);
  EXPECT_EQ(queue.waiting, 1);
  EXPECT_EQ(queue.prompt_tokens, 300);
  ASSERT_EQ(queue.clients.size(), 2u);
  EXPECT_GT(queue.clients[0].running, 0);
  EXPECT_EQ(queue.clients[0].waiting, 0);
  EXPECT_EQ(queue.clients[1].name, "waits");
  EXPECT_EQ(queue.clients[1].waiting, 1);
  EXPECT_NEAR(queue.completion_tokens, 20, 0.1);
  EXPECT_NEAR(queue.decode_seconds, 0.02, 0.001);
  harness.RunToEnd();
}

}  // namespace
}  // namespace sluice
