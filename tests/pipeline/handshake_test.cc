#include "common/pipeline/gateway/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/core/epochs.h"
#include "common/model_config/weights_mode.h"
#include "common/pipeline/stage/stage_checks.h"
#include "common/stage/stage.h"
#include "tests/pipeline/fake_stage.h"
#include "tests/testing/golden_model.h"

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

// Stages of a quantised model, each told its own --kv-type.
StatusOr<StageFacts> Join(const std::string& model, KvChoice first,
                          KvChoice second) {
  std::vector<StageFacts> facts;
  for (const auto& [layer, kv_type] :
       {std::pair(0, first), std::pair(2, second)}) {
    StageOptions options;
    options.model_path = model;
    options.first_layer = layer;
    options.last_layer = layer == 0 ? 2 : -1;
    options.threads = 1;
    options.kv_blocks = 8;
    options.kv_type = kv_type;
    SLUICE_ASSIGN_OR_RETURN(const auto stage, Stage::Load(options));
    v1::Welcome welcome;
    welcome.set_protocol_version(wire::kProtocolVersion);
    *welcome.mutable_identity() = wire::ToProto(stage->info());
    *welcome.mutable_limits() = wire::ToProto(LimitsOf(stage->info(), 4));
    SLUICE_ASSIGN_OR_RETURN(facts.emplace_back(),
                            CheckWelcome(Cat("a:", layer), welcome));
  }
  size_t conflict = 0;
  return JoinStages(facts, std::nullopt, conflict);
}

TEST(HandshakeTest, AutoKeysAndValuesJoinWhatTheyAreAndNothingElse) {
  using kernels::WeightType;
  constexpr KvChoice kAuto = std::nullopt;
  struct Case {
    const char* model;
    WeightType is;
    WeightType is_not;
    const char* says;
  };
  for (const Case& each :
       {Case{"gpt_oss-mxfp4", WeightType::kBf16, WeightType::kF32,
             "its numerics (--kv-type) is f32-canonical-3+q8-canonical-1, that "
             "of stage 0 (a:0) is f32-canonical-3+q8-canonical-1+kv-bf16-1"},
        Case{"qwen3", WeightType::kF32, WeightType::kBf16,
             "its numerics (--kv-type) is f32-canonical-3+kv-bf16-1, that of "
             "stage 0 (a:0) is f32-canonical-3"}}) {
    SCOPED_TRACE(each.model);
    const std::string model = testing::GoldenModel(each.model);
    for (const KvChoice other : {kAuto, KvChoice(each.is)}) {
      const auto joined = Join(model, kAuto, other);
      EXPECT_TRUE(joined.ok()) << joined.status();
    }
    const Status refused = Join(model, kAuto, each.is_not).status();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(refused), HasSubstr(each.says));
  }
}

}  // namespace
}  // namespace sluice
