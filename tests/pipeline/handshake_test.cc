#include "common/pipeline/gateway/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/epochs.h"
#include "common/pipeline/stage/stage_checks.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// What a stage that fits would say.
v1::Welcome FittingWelcome() {
  const StageInfo info = testing::FakeInfo(1, 2);
  v1::Welcome welcome;
  welcome.set_protocol_version(wire::kProtocolVersion);
  *welcome.mutable_identity() = wire::ToProto(info);
  *welcome.mutable_limits() = wire::ToProto(LimitsOf(info, 4));
  return welcome;
}

Status CheckChanged(void (*change)(v1::Welcome&)) {
  v1::Welcome welcome = FittingWelcome();
  change(welcome);
  return CheckWelcome("a:1", welcome).status();
}

TEST(HandshakeTest, AWelcomeIsTakenAsTheStageSaysIt) {
  const auto checked = CheckWelcome("a:1", FittingWelcome());
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->address, "a:1");
  EXPECT_EQ(static_cast<StageIdentity>(*checked), testing::FakeInfo(1, 2));
  EXPECT_EQ(checked->limits.max_steps_in_flight, 4);
  EXPECT_EQ(checked->limits.plan.vocab_size, 1000);
}

TEST(HandshakeTest, AnotherProtocolVersionIsRefusedNamingBoth) {
  const Status status = CheckChanged([](v1::Welcome& welcome) {
    welcome.set_protocol_version(wire::kProtocolVersion + 1);
    // Whatever else such a stage says may mean something else.
    welcome.clear_identity();
  });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr(Cat("the stage speaks ", wire::kProtocolVersion + 1,
                            ", this gateway speaks ", wire::kProtocolVersion)));
}

TEST(HandshakeTest, ANameOfARunHasItsLengthOrNone) {
  EXPECT_TRUE(
      CheckChanged([](v1::Welcome& welcome) { welcome.clear_run(); }).ok());
  const Status status =
      CheckChanged([](v1::Welcome& welcome) { welcome.set_run("ab"); });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("run has 2 bytes, not 16"));
}

TEST(HandshakeTest, AStageWithoutATermLeftIsRefused) {
  const Status status = CheckChanged([](v1::Welcome& welcome) {
    welcome.set_highest_term(kMaxTerm);
    welcome.set_highest_epoch(2);
  });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr("seen epoch 9223372036854775807.2 and no term is left, "
                        "limit 9223372036854775807: `sluice reset-term"));
}

TEST(HandshakeTest, AnotherBlockSizeIsRefusedNamingBoth) {
  const Status status = CheckChanged([](v1::Welcome& welcome) {
    welcome.mutable_limits()->set_block_tokens(kBlockTokens + 1);
  });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr(Cat("the stage has ", kBlockTokens + 1,
                            ", this gateway has ", kBlockTokens)));
}

TEST(HandshakeTest, AWelcomeOutOfRangeIsRefused) {
  const Status identity = CheckChanged([](v1::Welcome& welcome) {
    welcome.mutable_identity()->set_first_layer(-1);
  });
  EXPECT_EQ(identity.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(identity), HasSubstr("-1"));
  const Status limits = CheckChanged(
      [](v1::Welcome& welcome) { welcome.mutable_limits()->Clear(); });
  EXPECT_EQ(limits.code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
