// Stages that kept their KV cache, and the log of what they handed on.
#include "common/stage/boundary_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "tests/stage/stage_loop_fixture.h"
#include "tests/testing/golden_model.h"

namespace sluice {
namespace {

using BoundaryLogTest = StageLoopTest;

// A plan that starts sequence 1 with 17 tokens, 16 of which are hits in block
// 5, and replays these at the stages `at`.
StepPlan ReplayPlan(std::vector<int32_t> at) {
  StepPlan plan;
  const std::vector<TokenId> tokens(17, 3);
  plan.started.push_back({SequenceId(1), {}, 17, tokens, {{BlockId(5)}}, 0});
  Chunk chunk;
  chunk.sequence = SequenceId(1);
  chunk.tokens.assign(16, 3);
  chunk.replay = true;
  plan.chunks.push_back(chunk);
  plan.replay_at = std::move(at);
  return plan;
}

TEST_F(BoundaryLogTest, AReplayIsHandedOnFromTheLog) {
  const std::string path = testing::GoldenModel("stories");
  Load(path, 2, 1, 4);
  const auto hidden = [](int32_t rows) {
    HiddenStates states(rows, 64);
    for (int i = 0; i < rows * 64; ++i) states.values()[i] = 0.01f * (i % 97);
    return states;
  };
  const auto run = [&](StepPlan plan, uint64_t epoch, HiddenStates in) {
    loop_->Reset(Epoch(epoch));
    plan.epoch = Epoch(epoch);
    EXPECT_TRUE(loop_->Push({std::move(plan), std::move(in)}).ok());
    return sink_.AwaitStep().hidden;
  };
  StepPlan first = FirstPlan();
  first.started[0].tokens = first.chunks[0].tokens =
      ReplayPlan({}).chunks[0].tokens;
  first.started[0].num_prompt_tokens = 16;
  const HiddenStates want = run(first, 1, hidden(16));
  ASSERT_EQ(want.rows, 16);
  uint64_t epoch = 1;
  const auto expect_same = [&](const HiddenStates& got) {
    ASSERT_EQ(got.rows, 16);
    EXPECT_TRUE(
        std::equal(want.values(), want.values() + 16 * 64, got.values()));
  };
  // The next stage lost its KV cache; this one, and the next; others.
  expect_same(run(ReplayPlan({4}), ++epoch, {}));
  expect_same(run(ReplayPlan({2, 4}), ++epoch, hidden(16)));
  expect_same(run(ReplayPlan({0, 4}), ++epoch, {}));
  EXPECT_EQ(run(ReplayPlan({2}), ++epoch, hidden(16)).rows, 0);
  EXPECT_EQ(run(ReplayPlan({0}), ++epoch, {}).rows, 0);
  // Beside a chunk that every stage computes.
  StepPlan both = ReplayPlan({4});
  both.started.push_back({SequenceId(2), {}, 2, {3, 3}, {}});
  Chunk chunk;
  chunk.sequence = SequenceId(2);
  chunk.tokens = {3, 3};
  chunk.new_blocks = {{BlockId(6)}};
  both.chunks.insert(both.chunks.begin(), chunk);
  const HiddenStates got = run(both, ++epoch, hidden(2));
  ASSERT_EQ(got.rows, 18);
  for (const int row : {0, 2}) {
    EXPECT_TRUE(std::equal(want.values(), want.values() + 2 * 64,
                           got.values() + row * 64));
  }
  Load(path, 2, 1, 4, /*replay_log=*/false);
  loop_->Reset(Epoch(++epoch));
  StepPlan plan = ReplayPlan({4});
  plan.epoch = Epoch(epoch);
  ASSERT_TRUE(loop_->Push({std::move(plan), {}}).ok());
  EXPECT_NE(Message(sink_.AwaitError().why).find("has no log of it"),
            std::string::npos);
}

TEST_F(BoundaryLogTest, ReplaysThatContradictTheHitsStopTheEpoch) {
  const std::vector<std::function<void(StepPlan&)>> faults = {
      [](StepPlan& p) { p.started[0].replay_from.reset(); },
      [](StepPlan& p) { p.chunks[0].tokens.push_back(3); },
      [](StepPlan& p) { p.chunks[0].start = 1; },
      [](StepPlan& p) { p.chunks[0].tokens[4] = 7; },
      [](StepPlan& p) {
        p.chunks[0].replay = false;
        p.replay_at.clear();
      },
  };
  for (uint64_t i = 0; i < faults.size(); ++i) {
    loop_->Reset(Epoch(i + 1));
    StepPlan plan = ReplayPlan({0});
    plan.chunks[0].tokens.resize(i == 2 ? 15 : 16);
    faults[i](plan);
    ASSERT_TRUE(Push(std::move(plan), 0, i + 1).ok()) << "fault " << i;
    EXPECT_EQ(sink_.AwaitError().why.code(), StatusCode::kFailedPrecondition)
        << "fault " << i;
  }
}

}  // namespace
}  // namespace sluice
