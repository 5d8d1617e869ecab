#include "common/core/step_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

namespace sluice {
namespace {

constexpr PlanLimits kLimits = {.max_step_tokens = 8,
                                .max_sequences = 2,
                                .max_context = 64,
                                .num_blocks = 10,
                                .num_kv_groups = 1,
                                .vocab_size = 100};

StepPlan GoodPlan() {
  StepPlan plan;
  plan.step_id = StepId(3);
  plan.started.push_back({.sequence = SequenceId(7),
                          .sampling = {},
                          .num_prompt_tokens = 2,
                          .tokens = {1, 2, 3},
                          .blocks = {}});
  plan.chunks.push_back({.sequence = SequenceId(7),
                         .start = 0,
                         .tokens = {1, 2, 3},
                         .logits = LogitsWanted::kLast,
                         .samples = true,
                         .new_blocks = {{BlockId(4)}}});
  return plan;
}

TEST(StepPlanTest, AGoodPlanPasses) {
  EXPECT_TRUE(Validate(GoodPlan(), kLimits).ok());
}

TEST(StepPlanTest, DraftsAndAMaskForEachTokenThatMayBeSampledPass) {
  StepPlan plan = GoodPlan();
  plan.chunks[0].num_draft_tokens = 2;
  EXPECT_TRUE(Validate(plan, kLimits).ok());
  plan.chunks[0].masks = {
      {{{0, 1}, {7, 100}}, false}, {{}, true}, {{{3, 4}}, true}};
  EXPECT_TRUE(Validate(plan, kLimits).ok());
}

TEST(StepPlanTest, EachContradictionIsRefusedAndSaysWhich) {
  const struct {
    const char* says;
    std::function<void(StepPlan&)> spoil;
  } cases[] = {
      {"no tokens", [](auto& p) { p.chunks[0].tokens.clear(); }},
      {"positions", [](auto& p) { p.chunks[0].start = -1; }},
      {"positions", [](auto& p) { p.chunks[0].start = 62; }},
      {"positions",
       [](auto& p) {
         p.chunks[0].start = std::numeric_limits<int32_t>::max();
       }},
      {"vocabulary", [](auto& p) { p.chunks[0].tokens[1] = 100; }},
      {"vocabulary", [](auto& p) { p.started[0].tokens[1] = -1; }},
      {"names block",
       [](auto& p) { p.chunks[0].new_blocks[0] = {BlockId(10)}; }},
      {"names block", [](auto& p) { p.started[0].blocks = {{BlockId(-1)}}; }},
      {"KV groups", [](auto& p) { p.chunks[0].new_blocks.resize(2); }},
      {"blocks in one step",
       [](auto& p) { p.chunks[0].new_blocks[0].assign(5, BlockId(1)); }},
      {"draft tokens, limit 2",
       [](auto& p) { p.chunks[0].num_draft_tokens = 3; }},
      {"draft tokens, limit 2",
       [](auto& p) { p.chunks[0].num_draft_tokens = -1; }},
      {"last positions alone",
       [](auto& p) {
         p.chunks[0].num_draft_tokens = 1;
         p.chunks[0].samples = false;
       }},
      {"last positions alone",
       [](auto& p) {
         p.chunks[0].num_draft_tokens = 1;
         p.chunks[0].logits = LogitsWanted::kAll;
       }},
      {"2 masks for 1",
       [](auto& p) {
         p.chunks[0].masks.resize(2, {{{1, 2}}, false});
       }},
      {"1 masks for 3",
       [](auto& p) {
         p.chunks[0].num_draft_tokens = 2;
         p.chunks[0].masks.resize(1, {{{1, 2}}, false});
       }},
      {"run [4, 101)",
       [](auto& p) {
         p.chunks[0].masks = {{{{4, 101}}, false}};
       }},
      {"run [2, 3)",
       [](auto& p) {
         p.chunks[0].masks = {{{{1, 2}, {2, 3}}, false}};
       }},
      {"run [3, 3)",
       [](auto& p) {
         p.chunks[0].masks = {{{{3, 3}}, true}};
       }},
      {"run [-1, 3)",
       [](auto& p) {
         p.chunks[0].masks = {{{{-1, 3}}, true}};
       }},
      {"allows none",
       [](auto& p) {
         p.chunks[0].masks = {{{}, false}};
       }},
      {"allows none",
       [](auto& p) {
         p.chunks[0].masks = {{{{0, 100}}, true}};
       }},
      {"one of the 64 steps before",
       [](auto& p) { p.chunks[0].sampled_by = p.step_id; }},
      {"one of the 64 steps before",
       [](auto& p) {
         p.step_id = StepId(70);
         p.chunks[0].sampled_by = StepId(5);
       }},
      {"3 tokens, start 1 and 0 masks",
       [](auto& p) {
         p.chunks[0].sampled_by = StepId(2);
         p.chunks[0].start = 1;
       }},
      {"1 tokens, start 0 and 0 masks",
       [](auto& p) {
         p.chunks[0].sampled_by = StepId(2);
         p.chunks[0].tokens = {0};
       }},
      {"1 tokens, start 1 and 1 masks",
       [](auto& p) {
         p.chunks[0].sampled_by = StepId(2);
         p.chunks[0].start = 1;
         p.chunks[0].tokens = {0};
         p.chunks[0].masks = {{{{1, 2}}, false}};
       }},
      {"without logits",
       [](auto& p) { p.chunks[0].logits = LogitsWanted::kNone; }},
      {"two chunks", [](auto& p) { p.chunks.push_back(p.chunks[0]); }},
      {"twice", [](auto& p) { p.started.push_back(p.started[0]); }},
      {"limit 8", [](auto& p) { p.chunks[0].tokens.assign(9, 1); }},
      {"limit 2", [](auto& p) { p.chunks.assign(3, p.chunks[0]); }},
      {"prompt tokens", [](auto& p) { p.started[0].num_prompt_tokens = 4; }},
      {"prompt tokens", [](auto& p) { p.started[0].num_prompt_tokens = 0; }},
      {"tokens, limit", [](auto& p) { p.started[0].tokens.clear(); }},
      {"top_p", [](auto& p) { p.started[0].sampling.top_p = 2; }},
  };
  for (const auto& c : cases) {
    StepPlan plan = GoodPlan();
    c.spoil(plan);
    const Status status = Validate(plan, kLimits);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.says;
    EXPECT_NE(Message(status).find(c.says), std::string::npos)
        << c.says << " in " << status;
  }
}

TEST(StepPlanTest, VacantBlocksAreRisingRangesOfAPlanWithoutChunks) {
  StepPlan plan;
  plan.vacant = {{0, 1}, {1, kLimits.num_blocks}};
  EXPECT_TRUE(Validate(plan, kLimits).ok());
  const std::vector<std::vector<BlockRange>> refused = {
      {{-1, 1}},
      {{1, 1}},
      {{2, 1}},
      {{0, 2}, {1, 3}},
      {{0, kLimits.num_blocks + 1}}};
  for (const auto& ranges : refused) {
    plan.vacant = ranges;
    EXPECT_EQ(Validate(plan, kLimits).code(), StatusCode::kInvalidArgument);
  }
  StepPlan busy = GoodPlan();
  busy.vacant = {{0, 1}};
  EXPECT_EQ(Validate(busy, kLimits).code(), StatusCode::kInvalidArgument);
}

StepPlan GoodReplay() {
  StepPlan plan = GoodPlan();
  plan.started[0].tokens = std::vector<TokenId>(20, 1);
  plan.started[0].blocks = {{BlockId(2)}};
  plan.started[0].replay_from = 0;
  plan.chunks[0].tokens = {1, 1, 1};
  plan.chunks[0].logits = LogitsWanted::kNone;
  plan.chunks[0].samples = false;
  plan.chunks[0].replay = true;
  plan.chunks.push_back({.sequence = SequenceId(8),
                         .start = 5,
                         .tokens = {1},
                         .logits = LogitsWanted::kLast,
                         .samples = true});
  plan.replay_at = {4, 8};
  return plan;
}

TEST(StepPlanTest, AReplayIsComputedWhereThePlanSays) {
  const StepPlan plan = GoodReplay();
  EXPECT_TRUE(Validate(plan, kLimits).ok());
  EXPECT_EQ(plan.num_rows(0), 1);
  EXPECT_EQ(plan.num_rows(4), 4);
  EXPECT_EQ(plan.num_rows(8), 4);
  EXPECT_EQ(plan.num_tokens(), 4);
  EXPECT_EQ(GoodPlan().num_rows(0), 3);
}

TEST(StepPlanTest, EachContradictionOfAReplayIsRefusedAndSaysWhich) {
  const struct {
    const char* says;
    std::function<void(StepPlan&)> spoil;
  } cases[] = {
      {"replays without a stage", [](auto& p) { p.replay_at.clear(); }},
      {"stages of replays without a replay",
       [](auto& p) { p.chunks[0].replay = false; }},
      {"at layer -1", [](auto& p) { p.replay_at = {-1}; }},
      {"must be at least 5",
       [](auto& p) {
         p.replay_at = {4, 4};
       }},
      {"limit 1024", [](auto& p) { p.replay_at.assign(1025, 1); }},
      {"samples or wants logits",
       [](auto& p) { p.chunks[0].logits = LogitsWanted::kAll; }},
      {"samples or wants logits",
       [](auto& p) {
         p.chunks[0].logits = LogitsWanted::kLast;
         p.chunks[0].samples = true;
       }},
      {"samples or wants logits",
       [](auto& p) {
         p.chunks[0].tokens = {0};
         p.chunks[0].start = 1;
         p.chunks[0].sampled_by = StepId(2);
       }},
      {"replayed from position -1",
       [](auto& p) { p.started[0].replay_from = -1; }},
      {"its hits are positions 0 to 15",
       [](auto& p) { p.started[0].replay_from = 16; }},
      {"replayed from position 0",
       [](auto& p) { p.started[0].blocks.clear(); }},
  };
  for (const auto& one : cases) {
    StepPlan plan = GoodReplay();
    one.spoil(plan);
    const Status status = Validate(plan, kLimits);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.says;
    EXPECT_NE(Message(status).find(one.says), std::string::npos) << status;
  }
}

TEST(StepPlanTest, AChunkMayHaveATokenThatAnEarlierStepSamples) {
  StepPlan plan = GoodPlan();
  plan.chunks[0].start = 3;
  plan.chunks[0].tokens = {0};
  plan.chunks[0].sampled_by = StepId(2);
  EXPECT_EQ(Validate(plan, kLimits), OkStatus());
  EXPECT_EQ(Cat(plan),
            "step 3 epoch 0.0 ended [ ] started [ 7:3 ] chunks [ 7@3+1s<2 ]");
}

TEST(StepPlanTest, PrintsOneLine) {
  EXPECT_EQ(Cat(GoodPlan()),
            "step 3 epoch 0.0 ended [ ] started [ 7:3 ] chunks [ 7@0+3s ]");
}

}  // namespace
}  // namespace sluice
