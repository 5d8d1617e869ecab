// Parts of steps that fail because experts have no host: their sequences wait,
// and go on with their tokens.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <vector>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRetryVocab = 50;

EngineOptions Patient() {
  EngineOptions options;
  options.recovery_timeout = seconds(30);
  return options;
}

// The part of `result` becomes one that no host computed.
void FailPart(SequenceResult& part, Status why) {
  const SequenceId sequence = part.sequence;
  part = SequenceResult();
  part.sequence = sequence;
  part.status = std::move(why);
}

void FailAll(StepResult& result) {
  for (SequenceResult& part : result.sequences) {
    FailPart(part, Unavailable("no host"));
  }
}

TEST(SchedulerRetryTest, EverySequenceGetsWhatItGetsUndisturbed) {
  int waits = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](uint32_t n) { return random() % n; };
    EngineOptions options = Patient();
    options.prefill_chunk = 48;
    options.prefix_cache = pick(2) == 0;
    const int stages = 1 + static_cast<int>(pick(3));
    SchedulerHarness harness(options, TestLimits(seed % 2 ? 60 : 400), stages);
    TimePoint now = Clock::now();
    for (uint64_t i = 0; i < 8; ++i) {
      harness.Add(
          TestRequest(10 + static_cast<int>(pick(200)), 40, 100 * seed + i));
    }
    for (int moves = 0; harness.num_live() > 0; ++moves) {
      ASSERT_LT(moves, 20000) << "seed " << seed;
      while (pick(4) > 0 && harness.Plan()) {
      }
      if (harness.results_out() > 0) {
        for (SequenceResult& part : harness.NextResult().sequences) {
          if (pick(8) == 0) FailPart(part, Unavailable("no host"));
        }
        harness.Commit();
      }
      now += milliseconds(pick(30));
      harness.set_now(now);
    }
    for (const auto& [id, outcome] : harness.outcomes()) {
      EXPECT_EQ(outcome.result(), Undisturbed(harness.request(id), kRetryVocab))
          << "seed " << seed << ", sequence " << id;
      waits += outcome.waits;
    }
    EXPECT_EQ(harness.stats().suspended, 0);
  }
  EXPECT_GT(waits, 1000);
}

TEST(SchedulerRetryTest, NothingStartsInAPauseThatGrows) {
  SchedulerHarness harness(Patient(), TestLimits(100));
  TimePoint now = Clock::now();
  harness.set_now(now);
  const SequenceId id = harness.Add(TestRequest(30, 10));
  Duration pause = Retries::kFirstPause;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(harness.Plan());
    FailAll(harness.NextResult());
    harness.Commit();
    EXPECT_EQ(harness.stats().suspended, 1);
    EXPECT_EQ(harness.scheduler().next_deadline(), now + pause);
    // What the stages hold of the sequence is given back.
    if (harness.Plan()) harness.Commit();
    harness.set_now(now + pause - milliseconds(1));
    EXPECT_FALSE(harness.Plan());
    now += pause;
    harness.set_now(now);
    pause = std::min(2 * pause, Retries::kLongestPause);
  }
  EXPECT_EQ(harness.outcome(id).waits, 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).result(),
            Undisturbed(harness.request(id), kRetryVocab));
}

TEST(SchedulerRetryTest, ASequenceIsGivenUpInTheEnd) {
  SchedulerHarness harness(Patient(), TestLimits(100));
  const TimePoint start = Clock::now();
  const SequenceId id = harness.Add(TestRequest(30, 10));
  TimePoint now = start;
  while (harness.num_live() > 0) {
    ASSERT_LT(now, start + seconds(40));
    harness.set_now(now);
    if (harness.Plan()) {
      FailAll(harness.NextResult());
      harness.Commit();
    }
    now += milliseconds(100);
  }
  EXPECT_GE(now, start + seconds(30));
  const FinalEvent& end = harness.outcome(id).ends.at(0);
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(end.status, Unavailable("no host"));
  EXPECT_EQ(harness.stats().suspended, 0);
}

TEST(SchedulerRetryTest, OtherErrorsEndAtOnce) {
  for (const bool patient : {true, false}) {
    SchedulerHarness harness(patient ? Patient() : EngineOptions(),
                             TestLimits(100));
    const SequenceId id = harness.Add(TestRequest(30, 10));
    harness.Plan();
    FailPart(harness.NextResult().sequences.at(0),
             patient ? Internal("not finite") : Unavailable("no host"));
    harness.Commit();
    EXPECT_EQ(harness.outcome(id).ends.at(0).reason, FinishReason::kError);
  }
}

}  // namespace
}  // namespace sluice
