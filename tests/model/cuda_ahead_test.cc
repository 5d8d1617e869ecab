// Steps that begin before the one before is done: on a device that overlaps
// them, the same answers.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/device/forwarding_backend.h"
#include "common/measure/stage_steps.h"
#include "tests/device/cuda/device_backends.h"
#include "tests/model/expect_same.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/stage/stage_loop_fixture.h"
#include "tests/testing/shared_data.h"

namespace sluice::testing {
namespace {

PipelineOptions OptionsOf(const std::string& path, Numerics numerics) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 4;
  options.stage.threads = 1;
  options.stage.make_backends = DeviceBackends(Turns::kForward, numerics);
  return options;
}

// Greedy with log probabilities, drawn, and a short one.
std::vector<Ask> AsksOf(const std::string& path) {
  const std::vector<TokenId> ids = ReadGolden(path)[2].ids;
  Ask greedy;
  greedy.prompt.assign(ids.begin(), ids.begin() + 15);
  greedy.max_tokens = 6;
  greedy.sampling.temperature = 0;
  greedy.sampling.logprobs = 2;
  Ask drawn;
  drawn.prompt.assign(ids.begin(), ids.begin() + 9);
  drawn.max_tokens = 6;
  drawn.sampling.temperature = 1.5f;
  drawn.sampling.seed = 5;
  Ask brief = drawn;
  brief.max_tokens = 3;
  brief.sampling.seed = 6;
  return {greedy, drawn, brief};
}

// Fails the first answer of the first step.
class FailingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void Sample(DeviceMatrix logits, int32_t begin,
              std::span<const RowTask> tasks,
              std::span<StatusOr<TokenResult>> answers) override {
    if (first_ == nullptr) first_ = answers.data();
    ForwardingBackend::Sample(logits, begin, tasks, answers);
  }
  StepTimes EndStep() override {
    const StepTimes times = ForwardingBackend::EndStep();
    if (!std::exchange(has_failed_, true)) *first_ = Internal("no token");
    return times;
  }

 private:
  StatusOr<TokenResult>* first_ = nullptr;
  bool has_failed_ = false;
};

class CudaAheadTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    SLUICE_REQUIRE_DEVICE();
    SLUICE_REQUIRE_SHARED(path, std::string("golden/") + GetParam());
    path_ = path;
  }
  std::unique_ptr<Pipeline> Load(Numerics numerics) {
    auto pipeline = Pipeline::Load(OptionsOf(path_, numerics));
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return *std::move(pipeline);
  }

  std::string path_;
};

TEST_P(CudaAheadTest, TokensThatAreStillDrawnAreThoseOfOneStepAtATime) {
  for (const Numerics numerics : {Numerics::kCanonical, Numerics::kFast}) {
    const auto asks = AsksOf(path_);
    const auto pipeline = Load(numerics);
    const auto want = pipeline->Generate(asks);
    EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u);
    const auto got = pipeline->GenerateAhead(asks);
    ExpectSame(got, want);
    EXPECT_EQ(got[2].tokens.size(), 3u);
    EXPECT_GE(pipeline->loop(0).Stats().steps_ahead, 4u);
  }
}

TEST_P(CudaAheadTest, LogitsOfTheHostWaitForTheirStep) {
  auto asks = AsksOf(path_);
  asks[0].sampling.return_logits = true;
  const auto pipeline = Load(Numerics::kCanonical);
  const auto want = pipeline->Generate(asks);
  const auto got = pipeline->GenerateAhead(asks);
  ExpectSame(got, want);
  EXPECT_EQ(got[0].logits, want[0].logits);
  EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u);
}

TEST_P(CudaAheadTest, PenaltiesCountTheTokenThatTheStepBeforeDraws) {
  auto asks = AsksOf(path_);
  asks[1].sampling.repetition_penalty = 1.3f;
  asks[1].sampling.presence_penalty = 0.4f;
  const auto pipeline = Load(Numerics::kCanonical);
  const auto want = pipeline->Generate(asks);
  ExpectSame(pipeline->GenerateAhead(asks), want);
  EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u);
}

TEST_P(CudaAheadTest, AStepWhoseTokenWasNotDrawnFailsAsTheOneBefore) {
  const auto asks = AsksOf(path_);
  PipelineOptions options = OptionsOf(path_, Numerics::kCanonical);
  options.stage.make_backends = [](const BackendOptions& backend) {
    auto made = DeviceBackends()(backend);
    if (made.ok()) {
      for (auto& one : *made) {
        one = std::make_unique<FailingBackend>(std::move(one));
      }
    }
    return made;
  };
  const auto pipeline = *Pipeline::Load(options);
  StepPlan plan;
  plan.started = {{SequenceId(1), asks[1].sampling, 2, {3, 4}, {}},
                  {SequenceId(2), asks[2].sampling, 2, {3, 4}, {}}};
  for (int i = 0; i < 2; ++i) {
    Chunk& chunk = plan.chunks.emplace_back();
    chunk.sequence = SequenceId(static_cast<uint64_t>(i + 1));
    chunk.tokens = {3, 4};
    chunk.logits = LogitsWanted::kLast;
    chunk.samples = true;
    const size_t groups = pipeline->stage(0).info().limits.num_kv_groups;
    for (size_t g = 0; g < groups; ++g) {
      chunk.new_blocks.push_back({BlockId(static_cast<int32_t>(g) * 2 + i)});
    }
  }
  StepPlan next;
  next.chunks = plan.chunks;
  for (Chunk& chunk : next.chunks) {
    chunk.start = 2;
    chunk.tokens = {0};
    chunk.new_blocks = {};
    chunk.sampled_by = StepId(0);
  }
  ASSERT_TRUE(pipeline->Send(plan).ok());
  ASSERT_TRUE(pipeline->Send(next).ok());
  for (int step = 0; step < 2; ++step) {
    const auto result = pipeline->Await();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->sequences.size(), 2u);
    EXPECT_EQ(result->sequences[0].status, Internal("no token"));
    EXPECT_TRUE(result->sequences[0].sampled.empty());
    EXPECT_TRUE(result->sequences[1].status.ok());
    EXPECT_EQ(result->sequences[1].sampled.size(), 1u);
  }
}

TEST_P(CudaAheadTest, AnEpochEndsWithStepsInFlight) {
  const auto asks = AsksOf(path_);
  const auto pipeline = Load(Numerics::kCanonical);
  const auto want = pipeline->GenerateAhead(asks);
  pipeline->Restart(Epoch(1));
  pipeline->GenerateAhead(asks, 2);
  pipeline->Restart(Epoch(2));
  ExpectSame(pipeline->GenerateAhead(asks), want);
}

// A step that goes ahead computes before its turn: its trace tells its turn.
TEST_P(CudaAheadTest, TracedStepsThatGoAheadFollowEachOther) {
  const auto stage = Stage::Load(OptionsOf(path_, Numerics::kCanonical).stage);
  ASSERT_TRUE(stage.ok()) << stage.status();
  RecordingSink sink;
  StageLoop loop(stage->get(), &sink, 8);
  loop.Start();
  StepPlan plan;
  plan.started = {{SequenceId(1), AsksOf(path_)[1].sampling, 2, {3, 4}, {}}};
  Chunk& chunk = plan.chunks.emplace_back();
  chunk.sequence = SequenceId(1);
  chunk.tokens = {3, 4};
  chunk.logits = LogitsWanted::kLast;
  chunk.samples = true;
  chunk.new_blocks.resize((*stage)->info().limits.num_kv_groups);
  for (size_t g = 0; g < chunk.new_blocks.size(); ++g) {
    chunk.new_blocks[g] = {BlockId(static_cast<int32_t>(g))};
  }
  constexpr int kSteps = 4;
  for (int step = 0; step < kSteps; ++step) {
    plan.step_id = StepId(static_cast<uint64_t>(step));
    plan.trace.emplace();
    ASSERT_TRUE(loop.Push({plan, {}}).ok());
    plan.started = {};
    plan.chunks[0].start = step + 2;
    plan.chunks[0].tokens = {0};
    plan.chunks[0].new_blocks = {};
    plan.chunks[0].sampled_by = StepId(static_cast<uint64_t>(step));
  }
  int64_t stopped = 0;
  for (int step = 0; step < kSteps; ++step) {
    const StepOutput output = sink.AwaitStep();
    ASSERT_TRUE(output.plan.trace.has_value());
    ASSERT_EQ(output.plan.trace->stages.size(), 1u);
    const StageTrace& part = output.plan.trace->stages[0];
    EXPECT_GE(part.compute.start_ns, stopped) << step;
    EXPECT_GE(part.compute.start_ns, part.wait.start_ns);
    EXPECT_GE(part.compute.stop_ns, part.compute.start_ns);
    EXPECT_GE(part.sample.stop_ns, part.compute.stop_ns);
    stopped = part.sample.stop_ns;
  }
}

// What tests/gpu/run measures.
TEST_P(CudaAheadTest, MeasuredStepsGoAhead) {
  StageOptions options = OptionsOf(path_, Numerics::kCanonical).stage;
  const auto stage = Stage::Load(options);
  ASSERT_TRUE(stage.ok()) << stage.status();
  measure::StageSteps steps(stage->get(), 2, 16);
  steps.Step(4);
  EXPECT_EQ(steps.StepsAhead(3).size(), 3u);
  steps.Rewind(4);
  EXPECT_GT(steps.Step(1), 0);
}

INSTANTIATE_TEST_SUITE_P(, CudaAheadTest,
                         ::testing::Values("llama3-tied", "gpt_oss-mxfp4"),
                         [](const auto& tested) {
                           return std::string(tested.param, 5);
                         });

}  // namespace
}  // namespace sluice::testing
