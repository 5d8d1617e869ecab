// The hellos of one gateway, one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "common/pipeline/stage/control_stream.h"
#include "common/wire/stage.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class StageHelloTest : public ::testing::Test {
 protected:
  StageHelloTest() {
    testing::FakeStageOptions options;
    options.info = testing::FakeInfo(0, 1);
    stage_ = std::make_unique<testing::FakeStage>(options);
  }
  // The session and its stream hold each other until the stream's end.
  ~StageHelloTest() override {
    if (control_ != nullptr) stage_->session().OnControlEnd(control_.get());
  }
  // Returns the refusal; empty: the gateway holds the stage.
  std::string Say(uint64_t count, char secret = 's') {
    v1::Hello hello;
    hello.set_protocol_version(wire::kProtocolVersion);
    hello.set_gateway_id("gateway");
    hello.set_secret(std::string(wire::kSecretBytes, secret));
    hello.set_count(count);
    const auto control =
        std::make_shared<ControlStream>(rpc::ServerStreamOptions{"Control"},
                                        stage_->session().shared_from_this());
    const Status said = stage_->session().OnHello(hello, control).status();
    if (!said.ok()) return Message(said);
    control_ = control;
    return "";
  }

  std::unique_ptr<testing::FakeStage> stage_;
  std::shared_ptr<ControlStream> control_;  // holds the stage
};

TEST_F(StageHelloTest, ACopyTakesNoStageThatIsHeld) {
  ASSERT_EQ(Say(2), "");
  for (const uint64_t count : {0, 1, 2}) {
    EXPECT_THAT(Say(count), HasSubstr("held by another gateway"));
  }
  EXPECT_EQ(Say(3), "") << "the gateway connects again";
}

TEST_F(StageHelloTest, ACopyOfAFreeStageIsAnyClients) {
  ASSERT_EQ(Say(3), "");
  stage_->session().OnControlEnd(control_.get());
  EXPECT_EQ(Say(3), "");
  EXPECT_EQ(Say(4), "") << "the gateway takes it back";
}

TEST_F(StageHelloTest,
       AHigherCountThanTheGatewaysShutsItOutNoLongerThanItHolds) {
  ASSERT_EQ(Say(2), "");
  ASSERT_EQ(Say(UINT64_MAX), "") << "from one who knows the secret";
  EXPECT_THAT(Say(3), HasSubstr("held by another gateway"));
  stage_->session().OnControlEnd(control_.get());
  EXPECT_EQ(Say(4), "");
}

TEST_F(StageHelloTest, WithoutCountsTheLatestHolds) {
  EXPECT_EQ(Say(0), "");
  EXPECT_EQ(Say(0), "");
  EXPECT_EQ(Say(1), "");
  EXPECT_THAT(Say(0), HasSubstr("held by another gateway"));
}

}  // namespace
}  // namespace sluice
