#include "common/pipeline/gateway/stage_clock.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "common/pipeline/gateway/step_traces.h"

namespace sluice {
namespace {

constexpr int64_t kMicro = 1000;
constexpr int64_t kMilli = 1000 * kMicro;
constexpr int64_t kSecond = 1000 * kMilli;

// A stage whose clock stands elsewhere and runs a little fast.
struct SkewedStage {
  int64_t offset_ns = 0;
  int64_t parts_per_million = 0;
  int64_t Read(int64_t true_ns) const {
    return true_ns + offset_ns + true_ns / 1000000 * parts_per_million;
  }
};

TEST(StageClockTest, IsUnknownBeforeTheFirstRoundTrip) {
  StageClock clock;
  EXPECT_FALSE(clock.At(0).known);
  clock.Add(10, 5, 9);  // ends before it begins
  EXPECT_FALSE(clock.At(10).known);
}

TEST(StageClockTest, AnEvenRoundTripGivesTheExactOffset) {
  StageClock clock;
  const SkewedStage stage = {-5000 * kSecond};
  clock.Add(kSecond, stage.Read(kSecond + 50 * kMicro), kSecond + 100 * kMicro);
  const ClockEstimate estimate = clock.At(kSecond + 100 * kMicro);
  EXPECT_TRUE(estimate.known);
  EXPECT_EQ(estimate.offset_ns, stage.offset_ns);
  EXPECT_EQ(estimate.rtt_ns, 100 * kMicro);
  EXPECT_EQ(estimate.error_ns, 50 * kMicro);
}

TEST(StageClockTest, TheOffsetIsWrongByNoMoreThanItSays) {
  std::mt19937_64 random(1);
  for (const int64_t offset : {int64_t{0}, 7 * kSecond, -90000 * kSecond}) {
    const SkewedStage stage = {offset, 10};
    StageClock clock;
    int64_t now = 1000 * kSecond;
    for (int i = 0; i < 500; ++i) {
      now += 250 * kMilli;
      const auto out = static_cast<int64_t>(random() % (5 * kMilli));
      const auto back = static_cast<int64_t>(random() % (5 * kMilli));
      clock.Add(now, stage.Read(now + out), now + out + back);
      const ClockEstimate estimate = clock.At(now + out + back);
      const int64_t truth = stage.Read(now) - now;
      EXPECT_LE(std::abs(estimate.offset_ns - truth), estimate.error_ns)
          << "round trip " << i << " of offset " << offset;
    }
  }
}

TEST(StageClockTest, TheShortestRoundTripCountsUntilItIsTooOld) {
  StageClock clock;
  clock.Add(0, 1000 + 5 * kMicro, 10 * kMicro);  // exact: offset 1000
  // Slow and uneven ones change nothing.
  clock.Add(kSecond, kSecond + 900 * kMicro, kSecond + 1000 * kMicro);
  EXPECT_EQ(clock.At(2 * kSecond).offset_ns, 1000);
  EXPECT_NEAR(clock.At(2 * kSecond).error_ns,
              5 * kMicro + 2 * StageClock::kDriftPerSecond, 1);
  // But later ones push it out in the end.
  for (size_t i = 0; i < StageClock::kWindow; ++i) {
    const int64_t now = 10 * kSecond + static_cast<int64_t>(i) * kSecond;
    clock.Add(now, now + 777 + 50 * kMicro, now + 100 * kMicro);
  }
  EXPECT_EQ(clock.At(100 * kSecond).offset_ns, 777);
}

TEST(StageClockTest, AnotherProcessBeginsAnew) {
  StageClock clock;
  clock.Add(0, 1000, 10);
  clock.Reset();
  EXPECT_FALSE(clock.At(10).known);
}

// A step through stages with clocks of their own: 10 us per hop, 30 us on
// each stage. In true time it begins at `start`.
StepTrace SkewedStep(const std::vector<SkewedStage>& stages, int64_t start,
                     int64_t* received) {
  StepTrace trace;
  trace.serialise = {start - kMicro, start};
  int64_t now = start;
  for (const SkewedStage& stage : stages) {
    now += 10 * kMicro;
    StageTrace& part = trace.stages.emplace_back();
    const auto span = [&](int64_t length) {
      const int64_t begin = now;
      now += length;
      return TraceSpan{stage.Read(begin), stage.Read(now)};
    };
    part.receive = span(2 * kMicro);
    part.wait = span(5 * kMicro);
    part.compute = span(20 * kMicro);
    part.serialise = span(3 * kMicro);
  }
  *received = now + 10 * kMicro;
  return trace;
}

void ExpectInOrder(const StepTrace& trace, int64_t received) {
  int64_t last = trace.serialise.stop_ns;
  for (const StageTrace& stage : trace.stages) {
    for (const TraceSpan& span :
         {stage.receive, stage.wait, stage.compute, stage.serialise}) {
      EXPECT_GE(span.start_ns, last);
      EXPECT_GE(span.stop_ns, span.start_ns);
      last = span.stop_ns;
    }
  }
  EXPECT_GE(received, last);
}

TEST(AlignStagesTest, ExactOffsetsGiveTrueTimes) {
  const std::vector<SkewedStage> stages = {{3 * kSecond}, {-8 * kSecond}};
  int64_t received = 0;
  StepTrace trace = SkewedStep(stages, 1000 * kSecond, &received);
  const std::vector<ClockEstimate> clocks = {{true, 3 * kSecond, 0, 0},
                                             {true, -8 * kSecond, 0, 0}};
  AlignStages(clocks, received, trace);
  ExpectInOrder(trace, received);
  EXPECT_EQ(trace.stages[0].receive.start_ns, 1000 * kSecond + 10 * kMicro);
  EXPECT_EQ(trace.stages[1].serialise.stop_ns, received - 10 * kMicro);
  EXPECT_FALSE(trace.stages[1].sample.happened());
}

TEST(AlignStagesTest, WrongOffsetsNeverTurnTimeBack) {
  std::mt19937_64 random(2);
  const std::vector<SkewedStage> stages = {{0}, {kSecond}, {-kSecond}};
  for (int i = 0; i < 1000; ++i) {
    int64_t received = 0;
    const StepTrace measured = SkewedStep(stages, 5 * kSecond, &received);
    std::vector<ClockEstimate> clocks;
    for (const SkewedStage& stage : stages) {
      const auto wrong =
          static_cast<int64_t>(random() % (400 * kMicro)) - 200 * kMicro;
      clocks.push_back({true, stage.offset_ns + wrong, 200 * kMicro, 0});
    }
    StepTrace trace = measured;
    AlignStages(clocks, received, trace);
    ExpectInOrder(trace, received);
    for (size_t s = 0; s < stages.size(); ++s) {
      EXPECT_EQ(trace.stages[s].compute.duration_ns(),
                measured.stages[s].compute.duration_ns())
          << "what one clock measured stays as it is";
    }
  }
}

TEST(StepTracesTest, OnlyAnswersToTracedPlansOfAllStagesCount) {
  const std::vector<ClockEstimate> clocks(2);
  const auto answer = [&](uint64_t step, size_t stages) {
    StepResult result;
    result.step_id = StepId(step);
    result.trace.emplace().stages.resize(stages);
    for (StageTrace& stage : result.trace->stages) {
      stage.receive = {10, 20};
      stage.serialise = {20, 30};
    }
    return result;
  };
  StepTrace plan;
  plan.step_id = StepId(5);
  plan.serialise = {1, 2};
  plan.num_tokens = 3;

  StepTraces traces;
  StepResult unasked = answer(5, 2);
  traces.Complete(clocks, 100, unasked);
  EXPECT_FALSE(unasked.trace.has_value());

  traces.OnPlan(Epoch(), plan);
  StepResult short_of_one = answer(5, 1);
  traces.Complete(clocks, 100, short_of_one);
  EXPECT_FALSE(short_of_one.trace.has_value());

  traces.OnPlan(Epoch(), plan);
  StepResult good = answer(5, 2);
  traces.Complete(clocks, 100, good);
  ASSERT_TRUE(good.trace.has_value());
  EXPECT_EQ(good.trace->num_tokens, 3);
  EXPECT_EQ(good.trace->serialise, plan.serialise);

  traces.OnPlan(Epoch(), plan);
  StepResult backwards = answer(5, 2);
  backwards.trace->stages[1].compute = {25, 15};
  traces.Complete(clocks, 100, backwards);
  EXPECT_FALSE(backwards.trace.has_value());
}

TEST(StepTracesTest, APlanOfAnEpochThatIsOverSpoilsNoTrace) {
  const std::vector<ClockEstimate> clocks(1);
  StepTraces traces;
  traces.Begin(Epoch(1));
  StepTrace plan;
  plan.step_id = StepId(900);
  traces.OnPlan(Epoch(1), plan);
  traces.Begin(Epoch(2));
  EXPECT_EQ(traces.num_under_way(), 0u);
  traces.OnPlan(Epoch(1), plan);  // its sender came too late
  EXPECT_EQ(traces.num_under_way(), 0u);
  plan.step_id = StepId(1);
  traces.OnPlan(Epoch(2), plan);
  StepResult result;
  result.step_id = StepId(1);
  result.trace.emplace().stages.resize(1);
  result.trace->stages[0].receive = {10, 20};
  result.trace->stages[0].serialise = {20, 30};
  StepResult stale = result;
  stale.epoch = Epoch(1);
  traces.Complete(clocks, 100, stale);
  EXPECT_FALSE(stale.trace.has_value());
  EXPECT_EQ(traces.num_under_way(), 1u) << "it is another epoch's step 1";
  result.epoch = Epoch(2);
  traces.Complete(clocks, 100, result);
  EXPECT_TRUE(result.trace.has_value());
}

TEST(StepTracesTest, AResultWithoutATraceLeavesNothingUnderWay) {
  StepTraces traces;
  for (uint64_t step = 1; step <= 1000; ++step) {
    StepTrace plan;
    plan.step_id = StepId(step);
    traces.OnPlan(Epoch(), plan);
    StepResult result;
    result.step_id = StepId(step);
    traces.Complete({}, 100, result);
    EXPECT_FALSE(result.trace.has_value());
    EXPECT_EQ(traces.num_under_way(), 0u);
  }
}

TEST(StepTracesTest, StepsRelateClocksWhereHeartbeatsAreSlow) {
  const std::vector<SkewedStage> stages = {
      {kSecond}, {-kSecond}, {9 * kSecond}};
  StepTraces traces;
  // Heartbeats that are wrong by up to 3 ms.
  const std::vector<ClockEstimate> beats = {
      {true, kSecond + 2 * kMilli, 3 * kMilli, 6 * kMilli},
      {true, -kSecond, 3 * kMilli, 6 * kMilli},
      {true, 9 * kSecond - 2 * kMilli, 3 * kMilli, 6 * kMilli}};
  int64_t received = 0;
  const StepTrace measured = SkewedStep(stages, 5 * kSecond, &received);
  StepTrace plan;
  plan.serialise = measured.serialise;
  traces.OnPlan(Epoch(), plan);
  StepResult result;
  result.trace.emplace().stages = measured.stages;
  traces.Complete(beats, received, result);
  ASSERT_TRUE(result.trace.has_value());
  ExpectInOrder(*result.trace, received);
  int64_t sent = measured.serialise.stop_ns;
  for (const StageTrace& stage : result.trace->stages) {
    EXPECT_EQ(stage.receive.start_ns - sent, 10 * kMicro) << "each hop alike";
    sent = stage.serialise.stop_ns;
  }
  const auto best = traces.Best(beats, received);
  for (size_t i = 0; i < stages.size(); ++i) {
    EXPECT_EQ(best[i].offset_ns, stages[i].offset_ns);
    EXPECT_LE(best[i].error_ns, 31 * kMicro);
  }
  traces.Begin(Epoch(2));
  EXPECT_EQ(traces.Best(beats, received)[0].error_ns, 3 * kMilli);
}

}  // namespace
}  // namespace sluice
