// What throws ends one request, or one pipeline, never the process.
#include <memory>
#include <new>
#include <utility>

#include "tests/engine/engine_fixture.h"

namespace sluice {
namespace {

using EngineExceptionTest = EngineLoopTest;

TEST_F(EngineExceptionTest, ASinkThatThrowsEndsItsOwnSequenceAlone) {
  Run();
  const GenerateRequest request = TestRequest(30, 20);
  const auto other = Submit(request);
  auto throws = std::make_shared<RecordingSink>();
  throws->set_on_first_token([] { throw std::bad_alloc(); });
  ASSERT_TRUE(loop_->Submit(TestRequest(20, 20), throws).ok());
  const FinalEvent end = throws->WaitForEnd();
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(end.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(other->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_EQ(other->tokens(), Undisturbed(request, 50).tokens);
  EXPECT_TRUE(loop_->WaitIdle(Never()));
  EXPECT_EQ(loop_->Stats().exceptions, 1u);
}

TEST_F(EngineExceptionTest, ASinkThatThrowsAtItsLastTokenHasNotEndedWell) {
  Run();
  auto throws = std::make_shared<RecordingSink>();
  throws->set_on_first_token([] { throw std::bad_alloc(); });
  ASSERT_TRUE(loop_->Submit(TestRequest(20, 1), throws).ok());
  EXPECT_EQ(throws->WaitForEnd().reason, FinishReason::kError);
}

class StartlessSink : public RecordingSink {
 public:
  void OnStart() override { throw std::bad_alloc(); }
};

TEST_F(EngineExceptionTest, AStartThatThrowsBreaksNoSequence) {
  Run();
  const GenerateRequest request = TestRequest(30, 20);
  const auto other = Submit(request);
  const auto throws = std::make_shared<StartlessSink>();
  ASSERT_TRUE(loop_->Submit(TestRequest(20, 20), throws).ok());
  EXPECT_EQ(throws->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_EQ(other->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_EQ(other->tokens(), Undisturbed(request, 50).tokens);
  EXPECT_EQ(loop_->Stats().exceptions, 1u);
}

// Throws when it is told of its end for the first time.
class EndlessSink : public TokenSink {
 public:
  explicit EndlessSink(std::shared_ptr<RecordingSink> then)
      : then_(std::move(then)) {}
  void OnTokens(TokenEvent event) override {}
  void OnEnd(FinalEvent event) override {
    if (std::exchange(first_, false)) throw std::bad_alloc();
    then_->OnEnd(std::move(event));
  }

 private:
  const std::shared_ptr<RecordingSink> then_;
  bool first_ = true;
};

TEST_F(EngineExceptionTest, AnEndThatThrowsIsToldOnceMore) {
  Run();
  const auto recorded = std::make_shared<RecordingSink>();
  ASSERT_TRUE(
      loop_->Submit(TestRequest(20, 5), std::make_shared<EndlessSink>(recorded))
          .ok());
  EXPECT_EQ(recorded->WaitForEnd().reason, FinishReason::kError);
}

TEST_F(EngineExceptionTest, APlanThatCannotBeSubmittedBreaksThePipelineAlone) {
  Run();
  pipeline_->Pause();
  const auto lost = Submit(TestRequest(20, 5));
  pipeline_->ThrowOnce();
  const auto also = Submit(TestRequest(20, 5));
  pipeline_->Resume();
  EXPECT_EQ(lost->WaitForEnd().reason, FinishReason::kError);
  EXPECT_EQ(also->WaitForEnd().reason, FinishReason::kError);
  EXPECT_EQ(pipeline_->WaitForBroken().code(), StatusCode::kUnavailable);
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  const auto next = Submit(TestRequest(20, 5));
  EXPECT_EQ(next->WaitForEnd().reason, FinishReason::kLength);
}

}  // namespace
}  // namespace sluice
