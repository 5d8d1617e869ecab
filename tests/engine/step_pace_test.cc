#include "common/engine/step_pace.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Steps of a machine that needs 20 ms, and half a millisecond per prompt
// token.
Duration TimeOf(int32_t prompt_tokens) {
  return milliseconds(20) + prompt_tokens * microseconds(500);
}

StepPace::Step Of(int32_t decodes, int32_t prompt_tokens, Duration latency,
                  Duration busy) {
  return {decodes, prompt_tokens, false, latency, busy};
}

// Lets `pace` plan for itself: what it carries, in the end.
int32_t Settle(StepPace& pace, int plans = 300) {
  int32_t carried = 0;
  for (int i = 0; i < plans; ++i) {
    carried = pace.wants_decode_only_plan() ? 0 : pace.prompt_budget(1, 1);
    pace.OnResult(Of(1, carried, TimeOf(carried), TimeOf(carried)));
  }
  return pace.prompt_budget(1, 1);
}

TEST(StepPaceTest, PromptsGetWhatTheTargetLeaves) {
  StepPace pace(milliseconds(60));
  EXPECT_NEAR(Settle(pace), 80, 4);  // (60 - 20) / 0.5
}

TEST(StepPaceTest, WithoutATargetStepsGetLongerByThreeTenths) {
  StepPace pace(Duration::zero());
  EXPECT_NEAR(Settle(pace), 12, 2);  // 0.3 * 20 / 0.5
}

TEST(StepPaceTest, ACrowdMaySlowDownMoreUnlessATargetIsSet) {
  StepPace pace(Duration::zero());
  Settle(pace);
  EXPECT_NEAR(pace.prompt_budget(4, 4), 4 * 12, 8);
  EXPECT_EQ(pace.prompt_budget(100, 0), pace.prompt_budget(8, 0));
  // 8 x 24 / 32 (at most 4.5), 8 x 8 / 32 and 8 x 1 / 32 of three tenths.
  EXPECT_NEAR(pace.prompt_budget(24, 8), 4.5 * 12, 9);
  EXPECT_NEAR(pace.prompt_budget(8, 24), 2 * 12, 4);
  EXPECT_EQ(pace.prompt_budget(1, 31), pace.prompt_budget(1, 1));
  StepPace strict(milliseconds(60));
  Settle(strict);
  EXPECT_EQ(strict.prompt_budget(8, 0), strict.prompt_budget(1, 1));
}

TEST(StepPaceTest, PromptsProgressEvenWhereTheTargetLeavesNothing) {
  StepPace pace(milliseconds(5));
  EXPECT_EQ(Settle(pace), StepPace::kMinPrompt);
}

TEST(StepPaceTest, WhereStepsTakeNoTimePromptsAreNotBounded) {
  StepPace pace(Duration::zero());
  pace.OnResult(Of(1, 0, Duration::zero(), Duration::zero()));
  pace.OnResult(Of(1, 64, Duration::zero(), Duration::zero()));
  EXPECT_GE(pace.prompt_budget(1, 1), 8192);
}

TEST(StepPaceTest, OnePauseIsNoNewPace) {
  StepPace pace(milliseconds(60));
  const int32_t before = Settle(pace);
  pace.OnResult(Of(1, 0, seconds(5), seconds(5)));
  pace.OnResult(Of(1, before, seconds(5), seconds(5)));
  EXPECT_GE(pace.prompt_budget(1, 1), StepPace::kMinPrompt);
  EXPECT_NEAR(Settle(pace), before, 8);
}

TEST(StepPaceTest, WhatAPlanShouldTakeGoesByItsSizeAndNoPauseChangesIt) {
  StepPace pace(Duration::zero());
  EXPECT_EQ(pace.expected(1, 512), Duration::zero());
  const auto step = [&](int32_t decodes, int32_t prompt, Duration took) {
    pace.OnResult(Of(decodes, prompt, took, took));
  };
  for (int i = 0; i < 50; ++i) {
    step(0, 64, milliseconds(64));
    step(4, 0, milliseconds(20));
  }
  EXPECT_NEAR(Seconds(pace.expected(0, 512)), 0.512, 0.01);
  EXPECT_LT(Seconds(pace.expected(1, 0)), 0.07);
  EXPECT_GT(Seconds(pace.expected(1, 0)), 0.02) << "no less than is usual";
  step(4, 0, seconds(5));
  step(0, 64, seconds(5));
  EXPECT_LT(Seconds(pace.expected(0, 512)), 0.8);
  EXPECT_LT(Seconds(pace.expected(1, 0)), 0.15);
  step(0, 0, seconds(5));  // an empty plan says nothing
  EXPECT_LT(Seconds(pace.expected(1, 0)), 0.15);
}

TEST(StepPaceTest, EveryNowAndThenAPlanCarriesNoPrompt) {
  StepPace pace(milliseconds(60));
  int plain = 0;
  for (int i = 0; i < 330; ++i) {
    const int32_t carried =
        pace.wants_decode_only_plan() ? 0 : pace.prompt_budget(1, 1);
    plain += carried == 0 ? 1 : 0;
    pace.OnResult(Of(1, carried, TimeOf(carried), TimeOf(carried)));
  }
  EXPECT_GE(plain, 9);
  EXPECT_LE(plain, 12);
}

TEST(StepPaceTest, PromptsGoOutAloneWhereThatCostsDecodesLittle) {
  for (const int cost_ms : {1, 15}) {
    StepPace pace(Duration::zero());
    Settle(pace);
    EXPECT_TRUE(pace.allows_concurrent_prefill()) << "it is tried";
    int with = 0;
    for (int i = 0; i < 600; ++i) {
      const bool plain = pace.wants_decode_only_plan();
      const bool company = !plain && pace.allows_concurrent_prefill();
      const int32_t carried = plain ? 0 : pace.prompt_budget(1, 1);
      const Duration time =
          TimeOf(carried) + (company ? milliseconds(cost_ms) : Duration());
      pace.OnResult({1, carried, company, time, time});
      with += company ? 1 : 0;
    }
    if (cost_ms == 1) {
      EXPECT_GT(with, 500);
      EXPECT_NEAR(pace.prompt_budget(1, 1), 10, 3);  // 0.3 * 20 - 1
    } else {
      EXPECT_LE(with, 5) << "once, and now and then again";
      EXPECT_GT(with, 0);
    }
  }
}

TEST(StepPaceTest, CostsComeOutOfPlansOfEitherKindAndOfBoth) {
  StepPace pace(Duration::zero());
  EXPECT_FALSE(pace.known());
  for (int i = 0; i < 200; ++i) {
    pace.OnResult(Of(0, 256, milliseconds(128), milliseconds(128)));
    pace.OnResult(Of(8, 0, milliseconds(40), milliseconds(40)));
    pace.OnResult(Of(8, 64, milliseconds(72), milliseconds(72)));
    pace.OnEnd(100);
  }
  ASSERT_TRUE(pace.known());
  EXPECT_NEAR(pace.prompt_seconds(), 0.0005, 0.00003);
  EXPECT_NEAR(pace.decode_seconds(), 0.005, 0.0003);
  EXPECT_NEAR(pace.completion_tokens(), 100, 1);
}

// Plans of `decodes` that take `ms` milliseconds.
StepPace::Step PlainStep(int32_t decodes, int ms) {
  StepPace::Step step;
  step.decodes = decodes;
  step.latency = step.busy = std::chrono::milliseconds(ms);
  return step;
}

TEST(StepPaceTest, DecodesBesideOthersAreBoundedByWhatTheyCost) {
  StepPace pace{Duration::zero()};
  EXPECT_GT(pace.decode_limit(8), 1000000) << "not known";
  for (int i = 0; i < 20; ++i) pace.OnResult(PlainStep(8, 10 + 8));
  EXPECT_GT(pace.decode_limit(8), 1000000) << "plans of one size tell nothing";
  for (int i = 0; i < 20; ++i) pace.OnResult(PlainStep(40, 10 + 40));
  // 10 ms and 1 ms for each: 27 ms are half as long again as 18 ms.
  EXPECT_NEAR(pace.decode_limit(8), 17, 1);
  for (int i = 0; i < 1000; ++i) pace.OnResult(PlainStep(17, 27));
  EXPECT_NEAR(pace.decode_limit(8), 17, 1) << "it is not forgotten";
}

// 8 ms for 30 tokens say little of 1,000: small plans are mostly what any
// takes.
TEST(StepPaceTest, AFullPlanOfPromptsIsJudgedByTheLargest) {
  StepPace pace{Duration::zero()};
  EXPECT_EQ(pace.prompt_plan(2000), Duration::zero());
  for (int i = 0; i < 50; ++i) {
    pace.OnResult(Of(0, 30, milliseconds(8), milliseconds(8)));
  }
  EXPECT_NEAR(Seconds(pace.prompt_plan(2000)), 0.533, 0.01);
  pace.OnResult(Of(0, 1000, milliseconds(40), milliseconds(40)));
  EXPECT_NEAR(Seconds(pace.prompt_plan(2000)), 0.080, 1e-6);
  for (int i = 0; i < 50; ++i) {
    pace.OnResult(Of(0, 30, milliseconds(8), milliseconds(8)));
    pace.OnResult(Of(8, 1000, milliseconds(90), milliseconds(90)));
  }
  EXPECT_NEAR(Seconds(pace.prompt_plan(2000)), 0.080, 1e-6);
  for (int i = 0; i < 50; ++i) {
    pace.OnResult(Of(0, 800, milliseconds(64), milliseconds(64)));
  }
  EXPECT_NEAR(Seconds(pace.prompt_plan(2000)), 0.160, 0.001);
}

TEST(StepPaceTest, WhereDecodesCostNothingManyMayComeAlong) {
  StepPace pace{Duration::zero()};
  for (int i = 0; i < 20; ++i) {
    pace.OnResult(PlainStep(1, 10));
    pace.OnResult(PlainStep(64, 10));
  }
  EXPECT_GT(pace.decode_limit(1), 1000);
}

TEST(StepPaceTest, WhatIsOwedAShareOfTheTimeHasSoManyTokensOfAPlan) {
  StepPace pace{Duration::zero()};
  for (int i = 0; i < 50; ++i) {
    pace.OnResult(PlainStep(8, 20));
    pace.OnResult(Of(8, 20, milliseconds(30), milliseconds(30)));
  }
  EXPECT_NEAR(pace.prompt_budget(1, 1), 12, 1);
  EXPECT_NEAR(pace.share_budget(0.5), 40, 2);
  EXPECT_NEAR(pace.share_budget(1.0), 120, 4) << "kMaxShare";
  StepPace with_target{milliseconds(25)};
  for (int i = 0; i < 50; ++i) {
    with_target.OnResult(PlainStep(8, 20));
    with_target.OnResult(Of(8, 20, milliseconds(30), milliseconds(30)));
  }
  EXPECT_EQ(with_target.share_budget(0.5), with_target.prompt_budget(1, 1));
}

}  // namespace
}  // namespace sluice
