// Which epochs a stage takes, and of which it keeps keys and values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "common/core/epochs.h"
#include "common/pipeline/gateway/reset_term.h"
#include "common/pipeline/stage/term_budget.h"
#include "tests/pipeline/gateway_run.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::FakeInfo;
using testing::FakeStage;
using testing::FakeStageOptions;
using testing::GatewayRun;
using ::testing::HasSubstr;

FakeStageOptions OneStage() {
  FakeStageOptions options;
  options.info = FakeInfo(0, 1);
  return options;
}

Epoch In(uint64_t term, uint64_t counter) { return {term, counter}; }

bool Keeps(GatewayRun& run, Epoch epoch, Epoch keep) {
  const v1::Assigned assigned = run.Assign(epoch, keep);
  EXPECT_EQ(assigned.status_code(), 0) << assigned.status_message();
  return assigned.kept();
}

bool IsFree(FakeStage& stage) {
  return Eventually([&] { return !stage.session().held(); });
}

TEST(StageEpochsTest, OnlyTheLatestEpochOfTheSameRunIsKept) {
  FakeStage stage(OneStage());
  {
    GatewayRun run(stage, 'a');
    EXPECT_FALSE(Keeps(run, In(1, 100), Epoch(0)));
    EXPECT_TRUE(Keeps(run, In(1, 101), In(1, 100)));
    EXPECT_FALSE(Keeps(run, In(1, 102), In(1, 100))) << "not the latest";
    EXPECT_TRUE(Keeps(run, In(1, 103), In(1, 102)));
    EXPECT_FALSE(Keeps(run, In(1, 104), Epoch(0)));
    EXPECT_FALSE(run.Assign(In(1, 103), In(1, 104)).kept()) << "refused";
    EXPECT_TRUE(Keeps(run, In(1, 105), In(1, 104)));
    GatewayRun again(stage, 'a');  // the same run's next stream
    EXPECT_TRUE(Keeps(again, In(1, 106), In(1, 105)));
  }
  ASSERT_TRUE(IsFree(stage));
  {
    GatewayRun other(stage, 'b');
    EXPECT_FALSE(Keeps(other, In(2, 107), In(1, 106))) << "another run";
  }
  ASSERT_TRUE(IsFree(stage));
  GatewayRun first(stage, 'a');
  EXPECT_FALSE(Keeps(first, In(3, 108), In(1, 106))) << "another run between";
  EXPECT_TRUE(Keeps(first, In(3, 109), In(3, 108)));
}

TEST(StageEpochsTest, EveryGatewaysHoldHasAHigherTerm) {
  FakeStage stage(OneStage());
  {
    GatewayRun run(stage, 'a');
    EXPECT_EQ(run.highest(), TermStart(1));
    EXPECT_EQ(run.Assign(In(1, 100)).status_code(), 0);
    GatewayRun again(stage, 'a');  // the same run's next stream
    EXPECT_EQ(again.highest(), In(1, 100));
  }
  ASSERT_TRUE(IsFree(stage));
  {
    GatewayRun other(stage, 'b');
    EXPECT_EQ(other.highest(), TermStart(2));
    EXPECT_THAT(other.Assign(In(1, 101)).status_message(),
                HasSubstr("epoch 1.101 is not above 2.0, which this stage"));
    EXPECT_EQ(other.Assign(In(7, 3)).status_code(), 0);
  }
  ASSERT_TRUE(IsFree(stage));
  EXPECT_EQ(GatewayRun(stage, 'a').highest(), TermStart(8));
}

TEST(StageEpochsTest, AHoldAssignsNoTermFarAboveItsOwn) {
  FakeStage stage(OneStage());
  {
    GatewayRun rogue(stage, 'r');
    for (const uint64_t term :
         {uint64_t{1002}, uint64_t{1} << 31, kMaxTerm, UINT64_MAX}) {
      const v1::Assigned refused = rogue.Assign(In(term, 5));
      EXPECT_EQ(static_cast<StatusCode>(refused.status_code()),
                StatusCode::kFailedPrecondition);
      EXPECT_THAT(refused.status_message(),
                  HasSubstr(Cat("has term ", term,
                                ", limit 1001: this hold "
                                "has term 1")));
    }
    EXPECT_EQ(rogue.Assign(In(1001, UINT64_MAX)).status_code(), 0);
    EXPECT_THAT(rogue.Assign(In(1001, UINT64_MAX)).status_message(),
                HasSubstr("is not above"));
  }
  ASSERT_TRUE(IsFree(stage));
  GatewayRun next(stage, 'a');
  EXPECT_EQ(next.highest(), TermStart(1002));
  EXPECT_EQ(next.Assign(In(1002, 1)).status_code(), 0);
}

TEST(StageEpochsTest, AHelloRaisesTheTermTowardsTheOthers) {
  FakeStage stage(OneStage());
  EXPECT_EQ(GatewayRun(stage, 'a', {}, 700, 1).highest(), TermStart(700));
  EXPECT_EQ(GatewayRun(stage, 'a', {}, 3, 2).highest(), TermStart(700));
  // The same run, again and again.
  uint64_t count = 2;
  EXPECT_TRUE(Eventually([&] {
    return GatewayRun(stage, 'a', {}, 5000, ++count).highest() ==
           TermStart(5000);
  }));
  EXPECT_GE(count, 2u + 5);
}

TEST(StageEpochsTest, HoldsInARowRaiseTheTermSlowly) {
  FakeStage stage(OneStage());
  const TimePoint begin = Clock::now();
  uint64_t highest = 0;
  constexpr uint64_t kHolds = 100;
  for (uint64_t hold = 1; hold <= kHolds; ++hold) {
    const GatewayRun rogue(stage, 'r', {}, kMaxTerm, hold);
    ASSERT_TRUE(rogue.highest().has_value());
    highest = rogue.highest()->term();
  }
  const double ms = Seconds(Clock::now() - begin) * 1e3;
  EXPECT_LE(static_cast<double>(highest), 1 + kTermsPerHold + 100 * ms);
}

TEST(TermBudgetTest, GivesAThousandAtOnceAndAsManyInTenMilliseconds) {
  using std::chrono::milliseconds;
  using std::chrono::nanoseconds;
  const TimePoint begin = TimePoint() + std::chrono::hours(1);
  TermBudget budget;
  EXPECT_EQ(budget.Left(begin), kTermsPerHold);
  budget.Take(kTermsPerHold, begin);
  EXPECT_EQ(budget.Left(begin), 0u);
  EXPECT_EQ(budget.Left(begin + nanoseconds(9999)), 0u);
  EXPECT_EQ(budget.Left(begin + milliseconds(1)), 100u);
  budget.Take(40, begin + milliseconds(1));
  EXPECT_EQ(budget.Left(begin + milliseconds(1)), 60u);
  EXPECT_EQ(budget.Left(begin + milliseconds(10)), kTermsPerHold - 40);
  EXPECT_EQ(budget.Left(begin + std::chrono::hours(9)), kTermsPerHold);
}

TEST(StageEpochsTest, AResetTermBeginsAgain) {
  FakeStage stage(OneStage());
  constexpr Duration kLimit = std::chrono::seconds(10);
  {
    GatewayRun rogue(stage, 'r');
    EXPECT_EQ(rogue.Assign(In(900, 1)).status_code(), 0);
    const auto refused = ResetTerm(stage.address(), {}, kLimit);
    EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(refused.status()), HasSubstr("serves in epoch 900.1"));
  }
  ASSERT_TRUE(IsFree(stage));
  GatewayRun refuses(stage, 'a');
  EXPECT_EQ(refuses.highest(), TermStart(901));
  const auto term = ResetTerm(stage.address(), {}, kLimit);
  ASSERT_TRUE(term.ok()) << term.status();
  EXPECT_EQ(*term, 901u);
  ASSERT_TRUE(Eventually([&] { return refuses.end().has_value(); }));
  EXPECT_THAT(Message(*refuses.end()), HasSubstr("the term of this stage was "
                                                 "reset"));
  GatewayRun again(stage, 'a');
  EXPECT_EQ(again.highest(), TermStart(1));
  EXPECT_FALSE(Keeps(again, In(1, 1), In(900, 1)));
}

}  // namespace
}  // namespace sluice
