#include "common/stage/stage_loop.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/stage/stage_loop_fixture.h"
#include "tests/testing/golden_model.h"

namespace sluice {
namespace {

TEST_F(StageLoopTest, AStepSamplesAndTheNextOneGoesOnFromIt) {
  const TokenId token = RunFirst();
  ASSERT_TRUE(Push(NextPlan(3, token), 1).ok());
  const StepOutput output = sink_.AwaitStep();
  EXPECT_EQ(output.result->step_id, StepId(1));
  EXPECT_EQ(output.result->sequences.size(), 1u);
  EXPECT_GT(output.timing.compute_ns, 0);
  const StageLoopStats stats = loop_->Stats();
  EXPECT_EQ(stats.steps, 2u);
  EXPECT_EQ(stats.tokens, 4u);
  EXPECT_EQ(stats.prefill_steps, 1u);
  EXPECT_EQ(stats.sequences, 1);
  EXPECT_EQ(stats.kv_blocks_used, 1);
  EXPECT_EQ(stats.kv_blocks_peak, 1);
  EXPECT_TRUE(output.ranks.empty());
}

TEST_F(StageLoopTest, TheNextChunkGoesOnBehindTheAcceptedDrafts) {
  std::vector<TokenId> tokens = {RunFirst()};
  const auto sampled = [&](const StepPlan& plan, uint64_t step,
                           uint64_t epoch) {
    EXPECT_TRUE(Push(plan, step, epoch).ok());
    std::vector<TokenId> ids;
    const StepOutput output = sink_.AwaitStep();
    for (const TokenResult& token : output.result->sequences.at(0).sampled) {
      ids.push_back(token.token);
    }
    return ids;
  };
  for (int32_t i = 0; i < 3; ++i) {
    tokens.push_back(
        sampled(NextPlan(3 + i, tokens.back()), static_cast<uint64_t>(i + 1), 0)
            .at(0));
  }
  // The first draft is right, the second is not.
  StepPlan drafts = NextPlan(3, tokens[0]);
  drafts.chunks[0].tokens = {tokens[0], tokens[1], tokens[2] ^ 1};
  drafts.chunks[0].num_draft_tokens = 2;
  for (const int32_t start : {4, 5, 6}) {
    const auto epoch = static_cast<uint64_t>(start);
    loop_->Reset(Epoch(epoch));
    EXPECT_EQ(sampled(FirstPlan(), 0, epoch), std::vector<TokenId>{tokens[0]});
    EXPECT_EQ(sampled(drafts, 1, epoch),
              (std::vector<TokenId>{tokens[1], tokens[2]}));
    if (start == 5) {
      EXPECT_EQ(sampled(NextPlan(5, tokens[2]), 2, epoch),
                std::vector<TokenId>{tokens[3]});
      continue;
    }
    ASSERT_TRUE(Push(NextPlan(start, tokens[2]), 2, epoch).ok());
    EXPECT_EQ(sink_.AwaitError().why.code(), StatusCode::kFailedPrecondition);
  }
}

TEST_F(StageLoopTest, AStepGoesOnFromATokenThatThePlanDoesNotKnow) {
  std::vector<TokenId> tokens = {RunFirst()};
  for (int32_t i = 0; i < 3; ++i) {
    const auto step = static_cast<uint64_t>(i + 1);
    ASSERT_TRUE(Push(NextPlan(3 + i, tokens.back()), step).ok());
    const StepOutput output = sink_.AwaitStep();
    tokens.push_back(output.result->sequences.at(0).sampled.at(0).token);
  }
  loop_->Reset(Epoch(1));
  // In no order: each waits for the one before.
  for (const int32_t i : {2, 1, 0}) {
    const auto step = static_cast<uint64_t>(i + 1);
    ASSERT_TRUE(Push(AheadPlan(3 + i, step - 1), step, 1).ok());
  }
  ASSERT_TRUE(Push(FirstPlan(), 0, 1).ok());
  for (const TokenId token : tokens) {
    const StepOutput output = sink_.AwaitStep();
    EXPECT_EQ(output.result->sequences.at(0).sampled.at(0).token, token);
  }
}

TEST_F(StageLoopTest, TheFirstStageWaitsForTheTokensOfTheLastOne) {
  const std::string path = testing::GoldenModel("stories");
  Load(path, 0, 1, 2);
  RunFirstOfSeveral();
  ASSERT_TRUE(Push(AheadPlan(3, 0), 1).ok());
  StepResult sampled;
  sampled.epoch = Epoch(7);
  sampled.sequences.emplace_back().sequence = SequenceId(1);
  sampled.sequences[0].sampled.emplace_back().token = 8;
  loop_->OnSampled(sampled);  // of another epoch
  sampled.epoch = Epoch(0);
  sampled.sequences[0].sampled[0].token = 9;
  loop_->OnSampled(sampled);
  const StepOutput output = sink_.AwaitStep();
  EXPECT_EQ(output.plan.chunks[0].tokens, std::vector<TokenId>{9});
  EXPECT_TRUE(output.failed.empty());

  // A new epoch knows no token of the one before, and needs not wait for them.
  ASSERT_TRUE(Push(AheadPlan(4, 1), 2).ok());
  loop_->Reset(Epoch(1));
  RunFirstOfSeveral(1);
  ASSERT_TRUE(Push(AheadPlan(3, 0), 1, 1).ok());
  sampled.epoch = Epoch(1);
  sampled.sequences[0].status = Internal("no logits");
  loop_->OnSampled(sampled);
  const StepOutput failed = sink_.AwaitStep();
  ASSERT_EQ(failed.failed.size(), 1u);
  EXPECT_EQ(failed.failed[0].sequence, SequenceId(1));
  EXPECT_EQ(failed.failed[0].status, Internal("no logits"));
}

TEST_F(StageLoopTest, AStageInTheMiddleNeedsNoToken) {
  const std::string path = testing::GoldenModel("stories");
  Load(path, 2, 1, 4);
  ASSERT_TRUE(loop_->Push({FirstPlan(), Hidden(3)}).ok());
  sink_.AwaitStep();
  StepPlan plan = AheadPlan(3, 0);
  plan.step_id = StepId(1);
  ASSERT_TRUE(loop_->Push({plan, Hidden(1)}).ok());
  EXPECT_EQ(sink_.AwaitStep().plan, plan);
}

TEST_F(StageLoopTest, AFailedSequenceFailsAgainWhereItsTokenIsMissing) {
  const std::string path = testing::GoldenModel("stories");
  Load(path, 2);
  HiddenStates hidden = Hidden(3);
  hidden.values()[2 * 64] = NAN;
  ASSERT_TRUE(loop_->Push({FirstPlan(), std::move(hidden)}).ok());
  const StepOutput first = sink_.AwaitStep();
  StepPlan plan = AheadPlan(3, 0);
  plan.step_id = StepId(1);
  ASSERT_TRUE(loop_->Push({plan, Hidden(1)}).ok());
  const StepOutput output = sink_.AwaitStep();
  ASSERT_EQ(output.result->sequences.size(), 1u);
  EXPECT_EQ(output.result->sequences[0].status,
            first.result->sequences.at(0).status);
  EXPECT_TRUE(output.result->sequences[0].sampled.empty());
}

TEST_F(StageLoopTest, BlocksAreThoseOfLiveSequencesAndThePeakIsTheEpochs) {
  const TokenId token = RunFirst();
  StepPlan second = FirstPlan();
  second.started[0].sequence = second.chunks[0].sequence = SequenceId(2);
  second.chunks[0].new_blocks = {{BlockId(6)}};
  ASSERT_TRUE(Push(std::move(second), 1).ok());
  sink_.AwaitStep();
  EXPECT_EQ(loop_->Stats().kv_blocks_used, 2);
  StepPlan third = NextPlan(3, token);
  third.ended = {SequenceId(2)};
  ASSERT_TRUE(Push(std::move(third), 2).ok());
  sink_.AwaitStep();
  EXPECT_EQ(loop_->Stats().kv_blocks_used, 1);
  EXPECT_EQ(loop_->Stats().kv_blocks_peak, 2);
  loop_->Reset(Epoch(1));
  EXPECT_EQ(loop_->Stats().kv_blocks_used, 0);
  EXPECT_EQ(loop_->Stats().kv_blocks_peak, 0);
}

TEST_F(StageLoopTest, OfSeveralRanksEachTellsItsTimeInCollectives) {
  const std::string path = testing::GoldenModel("stories");
  Load(path, 0, 2);
  ASSERT_TRUE(Push(FirstPlan(), 0).ok());
  const StepOutput output = sink_.AwaitStep();
  ASSERT_EQ(output.ranks.size(), 2u);
  for (const CollectiveTimes& times : output.ranks) {
    EXPECT_GT(times.reduce_ns, 0);
    EXPECT_GT(times.gather_ns, 0);
    EXPECT_GT(times.wait_ns, 0);
    EXPECT_LE(times.wait_ns, times.reduce_ns + times.gather_ns);
    EXPECT_LE(times.reduce_ns + times.gather_ns, output.timing.compute_ns);
  }
  StepPlan empty;
  empty.ended = {SequenceId(1)};
  ASSERT_TRUE(Push(std::move(empty), 1).ok());
  EXPECT_TRUE(sink_.AwaitStep().ranks.empty());
}

TEST_F(StageLoopTest, ATracedStepTellsItsWaitComputeAndSampling) {
  StepPlan plan = FirstPlan();
  plan.trace.emplace();
  const int64_t before = MonotonicNanos();
  ASSERT_TRUE(Push(std::move(plan), 0).ok());
  const StepOutput output = sink_.AwaitStep();
  const int64_t after = MonotonicNanos();
  ASSERT_EQ(output.plan.trace->stages.size(), 1u);
  const StageTrace& part = output.plan.trace->stages[0];
  int64_t last = before;
  for (const TraceSpan& span : {part.wait, part.compute, part.sample}) {
    EXPECT_GE(span.start_ns, last);
    EXPECT_GE(span.stop_ns, span.start_ns);
    last = span.stop_ns;
  }
  EXPECT_LE(last, after);
  EXPECT_EQ(part.compute.duration_ns() + part.sample.duration_ns(),
            part.sample.stop_ns - part.compute.start_ns);
  EXPECT_FALSE(part.serialise.happened()) << "that is the sender's";
}

TEST_F(StageLoopTest, StepsRunInOrderHoweverTheyArrive) {
  StepPlan rest = FirstPlan();
  rest.started.clear();
  rest.chunks[0].start = 1;
  rest.chunks[0].tokens = {2, 3};
  rest.chunks[0].new_blocks.clear();
  StepPlan first = FirstPlan();
  first.chunks[0].tokens = {1};
  first.chunks[0].logits = LogitsWanted::kNone;
  first.chunks[0].samples = false;
  ASSERT_TRUE(Push(rest, 1).ok());
  ASSERT_TRUE(Push(first, 0).ok());
  EXPECT_EQ(sink_.AwaitStep().plan.step_id, StepId(0));
  const StepOutput second = sink_.AwaitStep();
  EXPECT_EQ(second.plan.step_id, StepId(1));
  EXPECT_EQ(second.result->sequences.size(), 1u);
}

TEST_F(StageLoopTest, AStepTooFarAheadOrRepeatedIsRefused) {
  EXPECT_EQ(Push(FirstPlan(), 4).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Push(FirstPlan(), 3).ok());
  EXPECT_EQ(Push(FirstPlan(), 3).code(), StatusCode::kInvalidArgument);
  RunFirst();
  EXPECT_EQ(Push(FirstPlan(), 0).code(), StatusCode::kInvalidArgument);
}

TEST_F(StageLoopTest, PlansOutsideTheLimitsAreRefusedAtThePush) {
  const std::vector<std::function<void(StepPlan&)>> faults = {
      [](StepPlan& p) { p.chunks[0].tokens[0] = 512; },
      [](StepPlan& p) { p.chunks[0].tokens[0] = -1; },
      [](StepPlan& p) { p.chunks[0].tokens.assign(65, 1); },
      [](StepPlan& p) { p.chunks[0].tokens.clear(); },
      [](StepPlan& p) { p.chunks[0].start = -1; },
      [](StepPlan& p) { p.chunks[0].start = 512; },
      [](StepPlan& p) { p.chunks[0].new_blocks = {{BlockId(16)}}; },
      [](StepPlan& p) { p.chunks[0].new_blocks = {{BlockId(-1)}}; },
      [](StepPlan& p) {
        p.chunks[0].new_blocks = {{}, {}};
      },
      [](StepPlan& p) { p.chunks[0].num_draft_tokens = 3; },
      [](StepPlan& p) { p.chunks.push_back(p.chunks[0]); },
      [](StepPlan& p) { p.started.push_back(p.started[0]); },
      [](StepPlan& p) { p.started[0].sampling.temperature = -1; },
      [](StepPlan& p) { p.started[0].tokens.clear(); },
      [](StepPlan& p) { p.started[0].num_prompt_tokens = 4; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    StepPlan plan = FirstPlan();
    faults[i](plan);
    const Status status = Push(plan, 0);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << "fault " << i;
  }
  RunFirst();  // and none left a trace
}

TEST_F(StageLoopTest, PlansThatContradictTheSequencesStopTheEpoch) {
  const std::vector<std::function<StepPlan(TokenId)>> faults = {
      [](TokenId t) { return NextPlan(4, t); },      // a gap
      [](TokenId t) { return NextPlan(2, 3); },      // computed before
      [](TokenId t) { return NextPlan(3, t ^ 1); },  // not what was sampled
      [](TokenId t) { return FirstPlan(); },         // starts twice
      [](TokenId t) { return AheadPlan(4, 0); },     // a gap
      [](TokenId t) {  // the step sampled none for the sequence
        StepPlan plan = AheadPlan(3, 0);
        plan.chunks[0].sequence = SequenceId(2);
        return plan;
      },
      [](TokenId t) {  // unknown
        StepPlan plan = NextPlan(3, t);
        plan.chunks[0].sequence = SequenceId(2);
        return plan;
      },
      [](TokenId t) {  // ended in the same plan
        StepPlan plan = NextPlan(3, t);
        plan.ended = {SequenceId(1)};
        return plan;
      },
      [](TokenId t) {  // tokens beyond the history
        StepPlan plan = NextPlan(3, t);
        plan.chunks[0].tokens = {t, 1};
        return plan;
      },
      [](TokenId t) {  // the table does not reach
        StepPlan plan = FirstPlan();
        plan.started[0].sequence = plan.chunks[0].sequence = SequenceId(2);
        plan.chunks[0].new_blocks.clear();
        return plan;
      },
      [](TokenId t) {  // starts beyond its prefix hits
        StepPlan plan = FirstPlan();
        plan.started[0].sequence = plan.chunks[0].sequence = SequenceId(2);
        plan.chunks[0].start = 1;
        plan.chunks[0].tokens = {2, 3};
        return plan;
      },
      [](TokenId t) {  // starts before them, in a block that others read
        StepPlan plan = FirstPlan();
        const std::vector<TokenId> prompt(17, 1);
        plan.started[0] = {SequenceId(2), {}, 17, prompt, {{BlockId(7)}}};
        plan.chunks[0].sequence = SequenceId(2);
        plan.chunks[0].tokens = prompt;
        return plan;
      },
      [](TokenId t) {  // ends one that is not there
        StepPlan plan;
        plan.ended = {SequenceId(77)};
        return plan;
      },
      [](TokenId t) {  // ends twice
        StepPlan plan;
        plan.ended = {SequenceId(1), SequenceId(1)};
        return plan;
      },
      [](TokenId t) {  // samples before the end of the history
        StepPlan plan = FirstPlan();
        plan.started[0].sequence = plan.chunks[0].sequence = SequenceId(2);
        plan.chunks[0].tokens = {1, 2};
        return plan;
      },
      [](TokenId t) {  // one sequence too many
        StepPlan plan;
        for (uint64_t id = 2; id <= 5; ++id) {
          plan.started.push_back({SequenceId(id), {}, 1, {1}, {}});
        }
        return plan;
      },
  };
  for (uint64_t i = 0; i < faults.size(); ++i) {
    const Epoch epoch(i + 1);
    loop_->Reset(epoch);
    ASSERT_TRUE(Push(FirstPlan(), 0, i + 1).ok());
    const StepOutput first = sink_.AwaitStep();
    const TokenId token = first.result->sequences[0].sampled[0].token;
    ASSERT_TRUE(Push(faults[i](token), 1, i + 1).ok()) << "fault " << i;
    const auto error = sink_.AwaitError();
    EXPECT_EQ(error.epoch, epoch);
    EXPECT_EQ(error.step, StepId(1));
    EXPECT_EQ(error.why.code(), StatusCode::kFailedPrecondition)
        << "fault " << i << ": " << error.why;
    // Nothing runs until the epoch is raised.
    EXPECT_TRUE(Push(FirstPlan(), 2, i + 1).ok());
    EXPECT_EQ(loop_->Stats().queue_depth, 0);
    EXPECT_EQ(loop_->Stats().sequences, 0);
  }
}

TEST_F(StageLoopTest, StepsOfAnotherEpochAreDropped) {
  EXPECT_TRUE(Push(FirstPlan(), 0, 7).ok());
  EXPECT_EQ(loop_->Stats().queue_depth, 0);
  RunFirst();
  EXPECT_EQ(loop_->Stats().sequences, 1);
  loop_->Reset(Epoch(7));
  EXPECT_EQ(loop_->Stats().sequences, 0);
  EXPECT_TRUE(Push(FirstPlan(), 1, 0).ok());
  EXPECT_EQ(loop_->Stats().queue_depth, 0);
  ASSERT_TRUE(Push(FirstPlan(), 0, 7).ok());  // sequence 1 was forgotten
  EXPECT_EQ(sink_.AwaitStep().plan.epoch, Epoch(7));
}

TEST_F(StageLoopTest, AFullPrefixHitRunsItsLastTokenAgain) {
  SamplingParams sampling;
  sampling.temperature = 0;
  std::vector<TokenId> prompt;
  for (int i = 0; i < 16; ++i) prompt.push_back(10 + i);
  StepPlan plan = FirstPlan();
  plan.started[0].tokens = plan.chunks[0].tokens = prompt;
  plan.started[0].num_prompt_tokens = 16;
  ASSERT_TRUE(Push(plan, 0).ok());
  const TokenId token = sink_.AwaitStep().result->sequences[0].sampled[0].token;
  StepPlan hit;
  hit.ended = {SequenceId(1)};
  hit.started.push_back({SequenceId(2), sampling, 16, prompt, {{BlockId(5)}}});
  Chunk chunk = plan.chunks[0];
  chunk.sequence = SequenceId(2);
  chunk.start = 15;
  chunk.tokens = {prompt[15]};
  chunk.new_blocks.clear();
  hit.chunks.push_back(chunk);
  ASSERT_TRUE(Push(hit, 1).ok());
  EXPECT_EQ(sink_.AwaitStep().result->sequences[0].sampled[0].token, token);
}

TEST_F(StageLoopTest, APlanThatOnlyEndsSequencesIsAnswered) {
  RunFirst();
  StepPlan plan;
  plan.ended = {SequenceId(1)};
  ASSERT_TRUE(Push(plan, 1).ok());
  EXPECT_TRUE(sink_.AwaitStep().result->sequences.empty());
  EXPECT_EQ(loop_->Stats().sequences, 0);
}

TEST_F(StageLoopTest, HiddenStatesOfAnotherShapeAreRefused) {
  const std::string path = testing::GoldenModel("stories");
  // The first stage takes none.
  EXPECT_EQ(loop_->Push({FirstPlan(), HiddenStates(3, 64)}).code(),
            StatusCode::kInvalidArgument);
  Load(path, 2);
  for (const auto& [rows, cols] :
       {std::pair{0, 0}, std::pair{2, 64}, std::pair{3, 32}}) {
    EXPECT_EQ(loop_->Push({FirstPlan(), HiddenStates(rows, cols)}).code(),
              StatusCode::kInvalidArgument);
  }
  HiddenStates short_of_bytes(3, 64);
  short_of_bytes.data = Buffer(16);
  EXPECT_EQ(loop_->Push({FirstPlan(), std::move(short_of_bytes)}).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(StageLoopTest, HiddenStatesWithANanFailTheSequenceAndNotTheStep) {
  const std::string path = testing::GoldenModel("stories");
  Load(path, 2);
  HiddenStates hidden(3, 64);
  for (int i = 0; i < 3 * 64; ++i) hidden.values()[i] = 0.1f;
  hidden.values()[2 * 64] = NAN;
  ASSERT_TRUE(loop_->Push({FirstPlan(), std::move(hidden)}).ok());
  const StepOutput output = sink_.AwaitStep();
  ASSERT_EQ(output.result->sequences.size(), 1u);
  EXPECT_EQ(output.result->sequences[0].status.code(), StatusCode::kInternal);
  EXPECT_TRUE(output.result->sequences[0].sampled.empty());
}

TEST_F(StageLoopTest, StopDropsWhatIsQueuedAndIsIdempotent) {
  EXPECT_TRUE(Push(FirstPlan(), 2).ok());
  loop_->Stop();
  loop_->Stop();
  EXPECT_EQ(loop_->Stats().queue_depth, 0);
  EXPECT_EQ(sink_.outputs(), 0u);
}

}  // namespace
}  // namespace sluice
