// Stages of several that begin a step before the one before is done: the tokens
// of one plan at a time. With threads that sanitizers know, in the place of
// devices that they do not.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "common/device/forwarding_backend.h"
#include "common/device/make_backends.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

// Computes a step when it is submitted, and says so only when it was asked
// often: steps overlap as on a device. No token is still drawn.
class LateBackend final : public ForwardingBackend {
 public:
  explicit LateBackend(std::unique_ptr<Backend> inner)
      : ForwardingBackend(std::move(inner)), info_(ForwardingBackend::info()) {
    info_.overlaps_steps = true;
  }
  const BackendInfo& info() const override { return info_; }
  void SubmitStep() override {
    ForwardingBackend::SubmitStep();
    computed_.push_back(ForwardingBackend::EndStep());
  }
  bool StepIsDone() override { return ++asked_ > kPatience; }
  StepTimes EndStep() override {
    asked_ = 0;
    const StepTimes times = computed_.front();
    computed_.pop_front();
    return times;
  }

 private:
  static constexpr int kPatience = 100;
  BackendInfo info_;
  int asked_ = 0;  // about the oldest step
  std::deque<StepTimes> computed_;
};

StatusOr<std::vector<std::unique_ptr<Backend>>> MakeLate(
    const BackendOptions& options) {
  auto made = MakeBackends(options);
  if (!made.ok()) return made;
  for (auto& backend : *made) {
    backend = std::make_unique<LateBackend>(std::move(backend));
  }
  return made;
}

class StagesAheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = GoldenModel("stories");
    StageOptions& stage = options_.stage;
    stage.model_path = path;
    stage.threads = 1;
    stage.kv_blocks = 32;
    stage.max_sequences = 8;
    stage.max_step_tokens = 64;
    Ask ask;
    for (const int length : {20, 9, 1, 5, 17}) {
      ask.prompt.assign(static_cast<size_t>(length), 3 + length);
      ask.max_tokens = 3 + length % 4;
      ask.sampling.seed = static_cast<uint64_t>(length);
      ask.sampling.temperature = length == 9 ? 0.0f : 1.2f;
      ask.sampling.logprobs = 1;
      if (length == 1) ask.sampling.repetition_penalty = 1.3f;
      asks_.push_back(ask);
    }
  }
  std::unique_ptr<Pipeline> Load(int32_t stages, int32_t ranks) {
    options_.stages = stages;
    options_.stage.ranks = options_.stage.threads = ranks;
    auto pipeline = Pipeline::Load(options_);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return *std::move(pipeline);
  }

  PipelineOptions options_;
  std::vector<Ask> asks_;
};

TEST_F(StagesAheadTest, PlansInFlightGiveTheTokensOfOneAtATime) {
  const auto want = Load(1, 1)->Generate(asks_);
  options_.stage.make_backends = MakeLate;
  for (const auto& [stages, ranks] : {std::pair{2, 1}, {3, 1}, {2, 2}}) {
    const auto pipeline = Load(stages, ranks);
    ExpectSame(pipeline->GenerateInGroups(
                   asks_, {.count = 3, .prefill_chunk = 6, .in_rounds = true}),
               want);
    for (int i = 0; i < stages; ++i) {
      const StageLoopStats stats = pipeline->loop(i).Stats();
      EXPECT_GE(stats.steps, 24u);
      // Of three plans two go ahead, but behind one without rows.
      EXPECT_GE(stats.steps_ahead, stats.steps / 3 * 2 - 3) << i;
    }
    pipeline->Restart(Epoch(1));
    ExpectSame(pipeline->GenerateInGroups(asks_, {.places = 2}), want);
  }
}

TEST_F(StagesAheadTest, EpochsEndWithStepsInFlight) {
  const auto want = Load(1, 1)->Generate(asks_);
  options_.stage.make_backends = MakeLate;
  const auto pipeline = Load(3, 1);
  uint64_t epoch = 0;
  for (const size_t results : {0, 1, 4, 9}) {
    pipeline->GenerateInGroups(asks_, {.prefill_chunk = 5, .results = results});
    pipeline->Restart(Epoch(++epoch));
  }
  ExpectSame(pipeline->GenerateInGroups(asks_, {.prefill_chunk = 5}), want);
  pipeline->Restart(Epoch(++epoch));
  pipeline->GenerateInGroups(asks_, {.results = 2});  // ends with these
}

}  // namespace
}  // namespace sluice::testing
