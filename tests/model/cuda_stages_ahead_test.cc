// Stages of several, on devices that overlap steps: with plans in flight the
// answers of a CPU, and of one plan at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/device/cuda/device_backends.h"
#include "tests/model/ahead_steps.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

// So many stages, of which a CPU may have one.
struct Cut {
  int32_t stages = 2;
  int32_t cpu_stage = -1;
};

class CudaStagesAheadTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    SLUICE_REQUIRE_DEVICE();
    const std::string path = GoldenModel(GetParam());
    path_ = path;
  }
  PipelineOptions OptionsOf(const Cut& cut,
                            Numerics numerics = Numerics::kCanonical) {
    PipelineOptions options = AheadOptions(path_);
    options.stages = cut.stages;
    options.stage.make_backends = DeviceBackends(Turns::kForward, numerics);
    for (int32_t i = 0; i <= cut.cpu_stage; ++i) {
      options.make_backends.push_back(
          i == cut.cpu_stage ? MakeBackends : options.stage.make_backends);
    }
    return options;
  }
  static std::unique_ptr<Pipeline> Load(const PipelineOptions& options) {
    auto pipeline = Pipeline::Load(options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return *std::move(pipeline);
  }
  // What a CPU answers, alone and one plan at a time.
  std::vector<Answer> Want(const std::vector<Ask>& asks) {
    return Load(OptionsOf({1, 0}))->Generate(asks);
  }
  // More than run at once in two groups, with prompts of several chunks.
  std::vector<Ask> Asks() const {
    std::vector<Ask> asks = AsksOf(path_);
    asks.push_back(asks[1]);
    asks.back().prompt.resize(1);
    asks.back().sampling.seed = 9;
    asks.back().max_tokens = 4;
    return asks;
  }
  // A GPU may be done with a prompt before the next plan is looked at.
  static bool IsSlow(const Stage& stage) {
    return stage.info().isa == "emulated";
  }
  static uint64_t Ahead(Pipeline& pipeline, int stage) {
    return pipeline.loop(stage).Stats().steps_ahead;
  }

  std::string path_;
};

TEST_P(CudaStagesAheadTest, PlansInFlightGiveTheTokensOfOneAtATime) {
  const auto asks = Asks();
  const auto want = Want(asks);
  for (const Cut& cut : {Cut{3, -1}, Cut{2, 0}, Cut{3, 1}}) {
    const auto pipeline = Load(OptionsOf(cut));
    ExpectSame(pipeline->GenerateInGroups(
                   asks, {.prefill_chunk = 6, .in_rounds = true}),
               want);
    for (int i = 0; i < cut.stages; ++i) {
      // Each round has a plan that goes ahead, but where a prompt's comes as
      // the step before ends.
      const uint64_t rounds = pipeline->loop(i).Stats().steps / 2;
      EXPECT_GT(rounds, 9u);
      if (i == cut.cpu_stage) {
        EXPECT_EQ(Ahead(*pipeline, i), 0u);
      } else {
        EXPECT_GE(Ahead(*pipeline, i), rounds - 3) << i;
        EXPECT_LE(Ahead(*pipeline, i), rounds) << i;
      }
    }
    if (cut.cpu_stage != 1) continue;
    // As they come.
    pipeline->Restart(Epoch(1));
    ExpectSame(pipeline->GenerateInGroups(asks, {.prefill_chunk = 6}), want);
  }
}

TEST_P(CudaStagesAheadTest, FastStagesGiveTheTokensOfOnePlanAtATime) {
  const auto asks = Asks();
  const auto pipeline = Load(OptionsOf({3, -1}, Numerics::kFast));
  const auto want = pipeline->Generate(asks);
  EXPECT_EQ(Ahead(*pipeline, 0), 0u);
  pipeline->Restart(Epoch(1));
  ExpectSame(pipeline->GenerateInGroups(
                 asks, {.places = 2, .prefill_chunk = 8, .in_rounds = true}),
             want);
  for (int i = 0; i < 3; ++i) EXPECT_GE(Ahead(*pipeline, i), 4u) << i;
}

// Their counts are those of results that are there; logits come to the host.
TEST_P(CudaStagesAheadTest, PenaltiesGoAheadAndLogitsDoNot) {
  auto asks = AsksOf(path_);
  asks.resize(2);
  asks[0].sampling.repetition_penalty = 1.3f;
  asks[1].sampling.presence_penalty = 0.4f;
  const auto want = Want(asks);
  const auto pipeline = Load(OptionsOf({2, -1}));
  ExpectSame(pipeline->GenerateInGroups(asks, {.in_rounds = true}), want);
  for (int i = 0; i < 2; ++i) EXPECT_GE(Ahead(*pipeline, i), 5u) << i;

  for (Ask& ask : asks) ask.sampling.return_logits = true;
  const auto logits = Want(asks);
  const std::vector<uint64_t> before = {Ahead(*pipeline, 0),
                                        Ahead(*pipeline, 1)};
  pipeline->Restart(Epoch(1));
  const auto got = pipeline->GenerateInGroups(asks, {.in_rounds = true});
  ExpectSame(got, logits);
  EXPECT_GE(Ahead(*pipeline, 0), before[0] + 5);
  EXPECT_LE(Ahead(*pipeline, 1), before[1] + 1);  // the last plan's ends
  for (size_t i = 0; i < asks.size(); ++i) {
    EXPECT_EQ(got[i].logits, logits[i].logits);
  }
}

TEST_P(CudaStagesAheadTest, AnEpochEndsWithStepsInFlight) {
  const auto asks = Asks();
  const auto want = Want(asks);
  const auto pipeline = Load(OptionsOf({3, -1}));
  uint64_t epoch = 0;
  for (const size_t results : {1, 3, 6}) {
    pipeline->GenerateInGroups(asks, {.prefill_chunk = 5, .results = results});
    pipeline->Restart(Epoch(++epoch));
  }
  ExpectSame(pipeline->GenerateInGroups(asks, {.prefill_chunk = 5}), want);
  pipeline->Restart(Epoch(++epoch));
  pipeline->GenerateInGroups(asks, {.results = 2});  // ends with these
}

// The first stage hands on what its log has, with two plans in flight.
TEST_P(CudaStagesAheadTest, AReplacedStageIsFedFromTheLog) {
  const auto pipeline = Load(OptionsOf({2, -1}));
  constexpr int kSequences = 3;
  const int32_t first_layer = pipeline->stage(1).info().first_layer;
  const int32_t groups = pipeline->stage(0).info().limits.num_kv_groups;
  std::vector<StepPlan> starts(kSequences);
  std::vector<StepPlan> replays(kSequences);
  std::vector<StepPlan> lasts(kSequences);
  for (int i = 0; i < kSequences; ++i) {
    StepPlan& start = starts[static_cast<size_t>(i)];
    std::vector<TokenId> tokens(2 * kBlockTokens + 1, 3 + i);
    Ask ask = AsksOf(path_)[i % 2];
    const SequenceId id(static_cast<uint64_t>(i) + 1);
    std::vector<std::vector<BlockId>> blocks(static_cast<size_t>(groups));
    std::vector<std::vector<BlockId>> more(static_cast<size_t>(groups));
    for (int32_t g = 0; g < groups; ++g) {
      const int32_t block = 3 * (i * groups + g);
      blocks[static_cast<size_t>(g)] = {BlockId(block), BlockId(block + 1)};
      more[static_cast<size_t>(g)] = {BlockId(block + 2)};
    }
    const auto count = static_cast<int32_t>(tokens.size());
    start.started = {{id, ask.sampling, count, tokens, {}}};
    Chunk& all = start.chunks.emplace_back();
    all.sequence = id;
    all.tokens = tokens;
    all.logits = LogitsWanted::kLast;
    all.samples = true;
    all.new_blocks = blocks;
    for (int32_t g = 0; g < groups; ++g) {
      const auto group = static_cast<size_t>(g);
      all.new_blocks[group].push_back(more[group][0]);
    }
    StepPlan& replay = replays[static_cast<size_t>(i)];
    replay.started = {{id, ask.sampling, count, tokens, blocks, 0}};
    Chunk& kept = replay.chunks.emplace_back();
    kept.sequence = id;
    kept.tokens.assign(tokens.begin(), tokens.end() - 1);
    kept.replay = true;
    replay.replay_at = {first_layer};
    Chunk& last = lasts[static_cast<size_t>(i)].chunks.emplace_back(all);
    last.start = count - 1;
    last.tokens = {tokens.back()};
    last.new_blocks = more;
  }
  const auto want = pipeline->RunTogether(starts);
  ASSERT_TRUE(want.ok()) << want.status();
  pipeline->Lose(1);
  pipeline->Restart(Epoch(1));
  const uint64_t before = Ahead(*pipeline, 0);
  ASSERT_TRUE(pipeline->RunTogether(replays).ok());
  const auto got = pipeline->RunTogether(lasts);
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < kSequences; ++i) {
    const auto& tokens = (*got)[i].sequences.at(0).sampled;
    ASSERT_EQ(tokens.size(), 1u);
    EXPECT_TRUE(tokens == (*want)[i].sequences.at(0).sampled) << i;
  }
  // Of a plan that it does not compute nothing is in flight.
  EXPECT_GE(Ahead(*pipeline, 0), before + 2);
  EXPECT_GE(Ahead(*pipeline, 1), IsSlow(pipeline->stage(1)) ? 4u : 2u);
}

TEST_P(CudaStagesAheadTest, AFailedSequenceEndsAlone) {
  auto asks = AsksOf(path_);
  const auto want = Want(asks);
  PipelineOptions options = OptionsOf({2, -1});
  options.make_backends = {DeviceBackends(), Failing(DeviceBackends())};
  auto pipeline = Load(options);
  ExpectFirstFails(*pipeline, asks);
  pipeline = Load(options);
  const auto got =
      pipeline->GenerateInGroups(asks, {.count = 3, .in_rounds = true});
  EXPECT_EQ(got[0].status, Internal("no token"));
  EXPECT_TRUE(got[0].tokens.empty());
  ExpectSame({got[1], got[2]}, {want[1], want[2]});
  for (int i = 0; i < 2; ++i) EXPECT_GE(Ahead(*pipeline, i), 8u) << i;
}

// One stage between others, whose plans the test sends itself: they come from
// the last one on, so that all are there when the first one begins.
class CudaMiddleStageTest : public CudaStagesAheadTest {
 protected:
  void SetUp() override {
    CudaStagesAheadTest::SetUp();
    if (IsSkipped()) return;
    Open(DeviceBackends());
  }
  void Open(BackendFactory make_backends) {
    loop_.reset();
    StageOptions options = AheadOptions(path_).stage;
    options.first_layer = 1;
    options.last_layer = 3;
    options.make_backends = std::move(make_backends);
    auto stage = Stage::Load(options);
    ASSERT_TRUE(stage.ok()) << stage.status();
    stage_ = *std::move(stage);
    loop_ = std::make_unique<StageLoop>(stage_.get(), &sink_, 8);
    loop_->Start();
  }
  void TearDown() override { loop_.reset(); }

  static constexpr int kTokens = kBlockTokens;

  // A plan that starts a sequence in blocks of its number, of which the groups
  // have one each, with a prompt of all of their positions.
  StepPlan PromptPlan(uint64_t sequence, int32_t number) const {
    StepPlan plan;
    const std::vector<TokenId> tokens(kTokens, 3);
    plan.started = {{SequenceId(sequence), {}, kTokens, tokens, {}}};
    Chunk& chunk = plan.chunks.emplace_back();
    chunk.sequence = SequenceId(sequence);
    chunk.tokens = tokens;
    chunk.new_blocks = BlocksOf(number);
    return plan;
  }
  // One that starts a sequence with these blocks as a hit, and replays them at
  // the next stage alone, or at this one too.
  StepPlan ReplayPlan(uint64_t sequence, int32_t number,
                      std::vector<int32_t> at) const {
    StepPlan plan = PromptPlan(sequence, number);
    plan.started[0].tokens.push_back(3);
    plan.started[0].num_prompt_tokens = kTokens + 1;
    plan.started[0].blocks = std::exchange(plan.chunks[0].new_blocks, {});
    plan.started[0].replay_from = 0;
    plan.chunks[0].replay = true;
    plan.replay_at = std::move(at);
    return plan;
  }
  std::vector<std::vector<BlockId>> BlocksOf(int32_t number) const {
    std::vector<std::vector<BlockId>> blocks;
    const int32_t groups = stage_->info().limits.num_kv_groups;
    for (int32_t g = 0; g < groups; ++g) {
      blocks.push_back({BlockId(number * groups + g)});
    }
    return blocks;
  }
  // Rows that differ by the seed.
  HiddenStates Rows(int32_t rows, int seed) const {
    HiddenStates hidden(rows, stage_->info().hidden_size);
    for (int64_t i = 0; i < int64_t{rows} * hidden.cols; ++i) {
      hidden.values()[i] = 0.01f * static_cast<float>((i + seed) % 89);
    }
    return hidden;
  }

  struct Sent {
    StepPlan plan;
    int seed = 0;
  };
  // Begins an epoch with the plans.
  void Send(std::vector<Sent> sent) {
    loop_->Reset(Epoch(++epoch_));
    for (size_t left = sent.size(); left > 0; --left) {
      auto& [plan, seed] = sent[left - 1];
      plan.epoch = Epoch(epoch_);
      plan.step_id = StepId(left - 1);
      HiddenStates rows = Rows(plan.num_rows(1), seed);
      ASSERT_TRUE(loop_->Push({std::move(plan), std::move(rows)}).ok());
    }
  }
  // The next step's rows for the next stage.
  std::vector<float> Await() {
    const StepOutput output = sink_.AwaitStep();
    const float* const rows = output.hidden.values();
    return {rows, rows + int64_t{output.hidden.rows} * output.hidden.cols};
  }
  std::vector<float> RunAlone(const StepPlan& plan, int seed) {
    Send({{plan, seed}});
    return Await();
  }
  uint64_t ahead() const { return loop_->Stats().steps_ahead; }
  // Prompts went ahead so often.
  void ExpectAhead(uint64_t times) const {
    if (IsSlow(*stage_)) {
      EXPECT_EQ(ahead(), times);
    }
  }

  uint64_t epoch_ = 0;
  RecordingSink sink_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StageLoop> loop_;
};

TEST_P(CudaMiddleStageTest, ReplaysInFlightAreHandedOnInTheirOrder) {
  const auto one = RunAlone(PromptPlan(1, 0), 1);
  const auto two = RunAlone(PromptPlan(1, 1), 2);
  ASSERT_EQ(one.size(),
            static_cast<size_t>(kTokens) * stage_->info().hidden_size);
  ASSERT_NE(one, two);
  EXPECT_EQ(ahead(), 0u);
  // The log has the first one's rows, and those of a step in flight; this stage
  // computes the last one again.
  StepPlan again = ReplayPlan(4, 1, {3});
  again.ended = {SequenceId(3)};
  Send({{ReplayPlan(1, 0, {3}), 0},
        {PromptPlan(2, 2), 1},
        {PromptPlan(3, 1), 7},
        {again, 0},
        {ReplayPlan(5, 2, {1, 3}), 1}});
  EXPECT_EQ(Await(), one);
  EXPECT_EQ(Await(), one);
  const auto seven = Await();
  EXPECT_NE(seven, two);
  EXPECT_EQ(Await(), seven);
  EXPECT_EQ(Await(), one);
  // Of a plan that this stage does not compute nothing is in flight.
  ExpectAhead(2);
}

TEST_P(CudaMiddleStageTest, ASequenceOfTheStepInFlightEndsAndItsBlocksGoOn) {
  const auto one = RunAlone(PromptPlan(1, 0), 1);
  const auto two = RunAlone(PromptPlan(1, 0), 2);
  StepPlan next = PromptPlan(2, 0);
  next.ended = {SequenceId(1)};
  StepPlan last;
  last.ended = {SequenceId(2)};
  Send({{PromptPlan(1, 0), 1}, {next, 2}, {last, 0}});
  EXPECT_EQ(Await(), one);
  EXPECT_EQ(Await(), two);
  EXPECT_TRUE(Await().empty());
  ExpectAhead(2);
  EXPECT_EQ(RunAlone(ReplayPlan(3, 0, {3}), 0), two);
}

TEST_P(CudaMiddleStageTest, AStepInFlightIsHandedOnBeforeAPlanThatIsRefused) {
  const auto one = RunAlone(PromptPlan(1, 0), 1);
  StepPlan next = PromptPlan(1, 0);
  next.ended = {SequenceId(1), SequenceId(7)};
  Send({{PromptPlan(1, 0), 1}, {next, 2}});
  EXPECT_EQ(Await(), one);
  const auto error = sink_.AwaitError();
  EXPECT_EQ(error.step, StepId(1));
  EXPECT_EQ(error.why.code(), StatusCode::kFailedPrecondition);
  ExpectAhead(1);
  EXPECT_EQ(RunAlone(PromptPlan(1, 0), 1), one);
}

// No gateway sends such a plan to one of several stages.
TEST_P(CudaMiddleStageTest, APlanThatNamesTheStepInFlightWaits) {
  StepPlan first = PromptPlan(1, 0);
  first.chunks[0].logits = LogitsWanted::kLast;
  first.chunks[0].samples = true;
  StepPlan next;
  Chunk& chunk = next.chunks.emplace_back(first.chunks[0]);
  chunk.start = kTokens;
  chunk.tokens = {0};
  chunk.new_blocks = BlocksOf(1);
  chunk.sampled_by = StepId(0);
  Send({{first, 1}, {next, 2}});
  const auto one = Await();
  const auto two = Await();
  EXPECT_EQ(ahead(), 0u);
  Open(MakeBackends);
  Send({{first, 1}, {next, 2}});
  EXPECT_EQ(Await(), one);
  EXPECT_EQ(Await(), two);
}

TEST_P(CudaMiddleStageTest, StepsInFlightAreTracedInTurn) {
  std::vector<Sent> sent;
  for (int i = 0; i < 4; ++i) {
    sent.push_back({PromptPlan(static_cast<uint64_t>(i) + 1, i), i});
    sent.back().plan.trace.emplace();
  }
  Send(std::move(sent));
  int64_t stopped = 0;
  for (int i = 0; i < 4; ++i) {
    const StepOutput output = sink_.AwaitStep();
    ASSERT_EQ(output.plan.trace->stages.size(), 1u);
    const StageTrace& part = output.plan.trace->stages[0];
    EXPECT_GE(part.compute.start_ns, stopped) << i;
    EXPECT_GE(part.compute.start_ns, part.wait.start_ns);
    EXPECT_GT(part.compute.stop_ns, part.compute.start_ns);
    EXPECT_FALSE(part.sample.happened());
    EXPECT_EQ(output.timing.compute_ns, part.compute.duration_ns());
    stopped = part.compute.stop_ns;
  }
  ExpectAhead(3);
}

const auto name_of = [](const auto& tested) {
  return std::string(tested.param, 5);
};
INSTANTIATE_TEST_SUITE_P(, CudaStagesAheadTest,
                         ::testing::Values("llama3-tied", "gpt_oss-mxfp4"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(, CudaMiddleStageTest,
                         ::testing::Values("llama3-tied", "gpt_oss-mxfp4"),
                         name_of);

}  // namespace
}  // namespace sluice::testing
