// A gateway's connection to one stage, told what its address answers.
#include "common/pipeline/gateway/stage_connection.h"

#include <gtest/gtest.h>

#include <string>

#include "common/pipeline/stage/stage_checks.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice {
namespace {

using testing::FakeInfo;

class StageConnectionTest : public ::testing::Test {
 protected:
  void Welcome(const std::string& run = {}) {
    v1::ControlResponse response;
    v1::Welcome& welcome = *response.mutable_welcome();
    welcome.set_run(run);
    welcome.set_protocol_version(wire::kProtocolVersion);
    *welcome.mutable_identity() = wire::ToProto(FakeInfo(0, 1));
    *welcome.mutable_limits() = wire::ToProto(LimitsOf(FakeInfo(0, 1), 4));
    const Status taken = stage_.OnMessage(response, MonotonicNanos());
    EXPECT_TRUE(taken.ok()) << taken;
  }
  bool VacantIn(Duration later) const {
    return stage_.vacant(Clock::now() + later, kPatience);
  }

  static constexpr Duration kPatience = std::chrono::seconds(100);
  StageConnection stage_{"a:1", nullptr};
};

TEST_F(StageConnectionTest, AnotherRunOfTheStageHasNothingKept) {
  const std::string first(wire::kRunBytes, 'a');
  Welcome(first);
  stage_.OnUp(Epoch(7), true);
  Welcome(first);
  EXPECT_TRUE(stage_.kept(Epoch(7)));
  Welcome(std::string(wire::kRunBytes, 'b'));
  EXPECT_FALSE(stage_.kept(Epoch(7)));
}

TEST_F(StageConnectionTest, AStageThatNamesNoRunHasNothingKept) {
  Welcome();
  stage_.OnUp(Epoch(7), true);
  Welcome();
  EXPECT_FALSE(stage_.kept(Epoch(7)));
}

TEST_F(StageConnectionTest, ALostProcessKeepsItsPlaceForTheGrace) {
  Welcome();
  stage_.End(Unavailable("Socket closed"));
  EXPECT_FALSE(VacantIn(kReturnGrace / 2));
  EXPECT_TRUE(VacantIn(kReturnGrace));
}

TEST_F(StageConnectionTest, AProcessThatRefusesConnectionsIsGone) {
  Welcome();
  stage_.End(Unavailable("Socket closed"));
  stage_.End(
      Unavailable("failed to connect to all addresses: Connection "
                  "refused"));
  EXPECT_TRUE(VacantIn(Duration::zero()));
}

TEST_F(StageConnectionTest, PatienceCountsFromWhereTheStageIsTried) {
  EXPECT_FALSE(VacantIn(kPatience / 2));
  EXPECT_TRUE(VacantIn(kPatience));
  Welcome();
  stage_.End(Unavailable("let go, for another gateway's sake"));
  stage_.SetDownState(StageState::kConnecting);
  stage_.NotTried(Clock::now() + 2 * kPatience);
  EXPECT_FALSE(VacantIn(2 * kPatience + kPatience / 2));
  EXPECT_TRUE(VacantIn(3 * kPatience));
}

}  // namespace
}  // namespace sluice
