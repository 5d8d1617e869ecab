#ifndef SLUICE_TESTS_MODEL_AHEAD_STEPS_H_
#define SLUICE_TESTS_MODEL_AHEAD_STEPS_H_

// What tests of steps that go ahead share, on one device and on several.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/device/forwarding_backend.h"
#include "common/device/make_backends.h"
#include "common/stage/stage_loop.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/stage/stage_loop_fixture.h"

namespace sluice::testing {

inline PipelineOptions AheadOptions(const std::string& path) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 4;
  options.stage.threads = 1;
  return options;
}

// Greedy with log probabilities, drawn, and a short one.
inline std::vector<Ask> AsksOf(const std::string& path) {
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

// Backends whose rank 0 is a FailingBackend.
inline BackendFactory Failing(BackendFactory factory) {
  return [factory = std::move(factory)](const BackendOptions& options) {
    auto made = factory(options);
    if (made.ok()) {
      made->front() =
          std::make_unique<FailingBackend>(std::move(made->front()));
    }
    return made;
  };
}

// Sends steps of two sequences over Failing backends: the first one's token is
// not drawn, and the second step, which would take it, fails alike.
inline void ExpectFirstFails(Pipeline& pipeline, const std::vector<Ask>& asks) {
  StepPlan plan;
  plan.started = {{SequenceId(1), asks[1].sampling, 2, {3, 4}, {}},
                  {SequenceId(2), asks[2].sampling, 2, {3, 4}, {}}};
  for (int i = 0; i < 2; ++i) {
    Chunk& chunk = plan.chunks.emplace_back();
    chunk.sequence = SequenceId(static_cast<uint64_t>(i + 1));
    chunk.tokens = {3, 4};
    chunk.logits = LogitsWanted::kLast;
    chunk.samples = true;
    const size_t groups = pipeline.stage(0).info().limits.num_kv_groups;
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
  ASSERT_TRUE(pipeline.Send(plan).ok());
  ASSERT_TRUE(pipeline.Send(next).ok());
  for (int step = 0; step < 2; ++step) {
    const auto result = pipeline.Await();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->sequences.size(), 2u);
    EXPECT_EQ(result->sequences[0].status, Internal("no token"));
    EXPECT_TRUE(result->sequences[0].sampled.empty());
    EXPECT_TRUE(result->sequences[1].status.ok());
    EXPECT_EQ(result->sequences[1].sampled.size(), 1u);
  }
}

// Steps that go ahead are traced one after another.
inline void ExpectTurns(Stage& stage, const SamplingParams& sampling) {
  RecordingSink sink;
  StageLoop loop(&stage, &sink, 8);
  loop.Start();
  StepPlan plan;
  plan.started = {{SequenceId(1), sampling, 2, {3, 4}, {}}};
  Chunk& chunk = plan.chunks.emplace_back();
  chunk.sequence = SequenceId(1);
  chunk.tokens = {3, 4};
  chunk.logits = LogitsWanted::kLast;
  chunk.samples = true;
  chunk.new_blocks.resize(stage.info().limits.num_kv_groups);
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

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_AHEAD_STEPS_H_
