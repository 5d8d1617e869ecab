// Which epochs a stage takes, and of which it keeps keys and values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/epochs.h"
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

Epoch In(uint64_t term, uint64_t counter) {
  return Epoch(TermStart(term).value() + counter);
}

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
    EXPECT_THAT(other.Assign(TermStart(kMaxTerm + 1)).status_message(),
                HasSubstr("has term 2147483649, limit 2147483648"));
    EXPECT_EQ(other.Assign(In(7, 3)).status_code(), 0);
  }
  ASSERT_TRUE(IsFree(stage));
  EXPECT_EQ(GatewayRun(stage, 'a').highest(), TermStart(8));
}

}  // namespace
}  // namespace sluice
