// Chunks of prompts that leave before the results of the chunks before them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

constexpr int kChunk = 16;
constexpr int kChunks = 10;
constexpr int kVocab = 50;

// Plans of a chunk at most.
EngineOptions Options(Duration ahead_within) {
  EngineOptions options;
  options.ahead_within = ahead_within;
  options.max_step_tokens = kChunk;
  return options;
}

// Two stages that compute a plan for as long as it has prompt tokens, or for a
// millisecond, and hidden states that take their time between them.
class TimedPipeline {
 public:
  explicit TimedPipeline(Duration chunk, Duration hop)
      : chunk_(chunk), hop_(hop) {}

  // Returns when the result of a plan that leaves at `now` is back.
  TimePoint Done(const StepPlan& plan, TimePoint now) {
    const Duration takes =
        plan.num_tokens() > 1 ? chunk_ : Duration(milliseconds(1));
    first_ = std::max(first_, now + kWay) + takes;
    last_ = std::max(last_, first_ + hop_) + takes;
    return last_ + kWay;
  }

 private:
  static constexpr Duration kWay = milliseconds(1);  // from and to the gateway
  const Duration chunk_, hop_;
  TimePoint first_, last_;  // when each stage is free
};

struct Seen {
  Duration first_token{};
  int most_in_flight = 0;
};

// Runs a prompt of kChunks chunks over the stages.
Seen RunPrompt(Duration ahead_within, Duration chunk, Duration hop) {
  SchedulerHarness harness(Options(ahead_within), TestLimits(100),
                           /*num_stages=*/2);
  TimedPipeline pipeline(chunk, hop);
  const GenerateRequest request = TestRequest(kChunk * kChunks, 1);
  const SequenceId id = harness.Add(request);
  const TimePoint begin = TimePoint() + std::chrono::hours(1);
  TimePoint now = begin;
  std::deque<TimePoint> results;
  Seen seen;
  while (harness.num_live() > 0) {
    harness.set_now(now);
    while (const std::optional<StepPlan> plan = harness.Plan()) {
      results.push_back(pipeline.Done(*plan, now));
    }
    seen.most_in_flight =
        std::max(seen.most_in_flight, static_cast<int>(results.size()));
    now = results.front();
    results.pop_front();
    harness.set_now(now);
    EXPECT_TRUE(harness.Commit());
    if (::testing::Test::HasFailure()) break;
  }
  seen.first_token = now - begin;
  EXPECT_EQ(harness.outcome(id).result(), Undisturbed(request, kVocab));
  return seen;
}

// A way there, ten chunks on the first stage without a pause, a hop, a chunk on
// the last one, a way back. Otherwise the first stage waits at every second
// chunk for a hop, a result and a plan.
TEST(SchedulerPromptAheadTest, AStageHasTheNextChunkAtHand) {
  const Seen ahead =
      RunPrompt(milliseconds(5), milliseconds(10), milliseconds(4));
  EXPECT_EQ(ahead.first_token, milliseconds(1 + 100 + 4 + 10 + 1));
  EXPECT_EQ(ahead.most_in_flight, 3);
  const Seen without =
      RunPrompt(Duration::zero(), milliseconds(10), milliseconds(4));
  EXPECT_EQ(without.first_token,
            milliseconds(1 + 100 + 4 + 10 + 1 + 4 * (4 + 1 + 1)));
  EXPECT_EQ(without.most_in_flight, 2);
}

// A new request would wait for one plan more. Before the first result nothing
// is known.
TEST(SchedulerPromptAheadTest, NoChunkGoesAheadWhereAPlanTakesLong) {
  const Seen seen =
      RunPrompt(milliseconds(5), milliseconds(200), milliseconds(4));
  EXPECT_EQ(seen.first_token,
            milliseconds(1 + 2000 + 4 + 200 + 1 + 4 * (4 + 1 + 1)));
}

// A decode would wait for it.
TEST(SchedulerPromptAheadTest, NoChunkGoesAheadBesideADecode) {
  SchedulerHarness harness(Options(milliseconds(5)), TestLimits(100),
                           /*num_stages=*/2);
  const SequenceId first = harness.Add(TestRequest(kChunk, 30, 1));
  ASSERT_TRUE(harness.Plan());
  ASSERT_TRUE(harness.Commit());
  harness.Add(TestRequest(kChunk * kChunks, 1, 2));
  int in_flight = 0;
  while (harness.outcome(first).ends.empty()) {
    while (harness.Plan()) EXPECT_LE(++in_flight, 2);
    ASSERT_TRUE(harness.Commit());
    --in_flight;
  }
  harness.RunToEnd();
}

// A stage alone waits for no hop.
TEST(SchedulerPromptAheadTest, OnePlanGoesAheadWhereThereAreSeveralStages) {
  for (const int stages : {1, 2, 3}) {
    SchedulerHarness harness(Options(milliseconds(5)), TestLimits(100), stages);
    harness.Add(TestRequest(kChunk * kChunks, 5));
    for (int i = 0; i < stages; ++i) ASSERT_TRUE(harness.Plan());
    EXPECT_EQ(harness.Plan().has_value(), stages > 1);
    EXPECT_FALSE(harness.Plan());
    harness.RunToEnd();
  }
}

TEST(SchedulerPromptAheadTest, NoneGoesBeyondTheOption) {
  EngineOptions options = Options(milliseconds(5));
  options.max_plans_in_flight = 2;
  SchedulerHarness harness(options, TestLimits(100), /*num_stages=*/2);
  harness.Add(TestRequest(kChunk * kChunks, 5));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(harness.Plan());
  EXPECT_FALSE(harness.Plan());
  harness.RunToEnd();
}

// Half of a step is a prompt's, whatever the stages take, but 256 tokens.
TEST(SchedulerPromptAheadTest, AChunkIsHalfAStep) {
  for (const auto& [step, chunk] : {std::pair{512, 256}, std::pair{2048, 1024},
                                    std::pair{300, 256}, std::pair{64, 64}}) {
    EngineOptions options;
    options.max_step_tokens = std::numeric_limits<int>::max();
    options.prefill_chunk = EngineOptions::kHalfStep;
    PlanLimits limits = TestLimits(400);
    limits.max_step_tokens = step;
    limits.max_context = 6000;
    SchedulerHarness harness(options, limits);
    harness.Add(TestRequest(5000, 1));
    const std::optional<StepPlan> plan = harness.Plan();
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->num_tokens(), chunk) << step;
    harness.RunToEnd();
  }
}

}  // namespace
}  // namespace sluice
