// A lost pipeline is a pause: sequences wait, and go on with their tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int kSmallVocab = 50;

bool Carries(const StepPlan& plan, SequenceId id) {
  return std::ranges::any_of(
      plan.chunks, [&](const Chunk& chunk) { return chunk.sequence == id; });
}

// Runs until every sequence has ended, with a pipeline of `num_stages`. It dies
// whenever a plan with a position at or behind `end` of sequence `poison` is in
// flight.
void RunWithPoison(SchedulerHarness& harness, SequenceId poison, int32_t end,
                   int num_stages) {
  uint64_t epoch = 1;
  for (int moves = 0; harness.num_live() > 0; ++moves) {
    ASSERT_LT(moves, 10000);
    bool dies = false;
    while (const std::optional<StepPlan> plan = harness.Plan()) {
      for (const Chunk& chunk : plan->chunks) {
        dies = dies || (chunk.sequence == poison &&
                        chunk.start + std::ssize(chunk.tokens) >= end);
      }
    }
    if (dies) {
      harness.Suspend();
      harness.Attach(Epoch(++epoch), num_stages);
    } else {
      harness.Commit();
    }
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  harness.RunToEnd();
}

TEST(SchedulerRecoveryTest, ASequenceThatKillsItsStagesEndsAlone) {
  for (const int stages : {1, 3}) {
    for (const int32_t end : {10, 300, 304}) {
      EngineOptions options;
      options.prefill_chunk = 64;
      SchedulerHarness harness(options, TestLimits(400), stages);
      std::vector<SequenceId> good;
      for (uint64_t i = 0; i < 6; ++i) {
        good.push_back(harness.Add(TestRequest(20 + 30 * int(i), 60, i)));
      }
      const SequenceId poison = harness.Add(TestRequest(300, 40, 77));
      good.push_back(harness.Add(TestRequest(50, 60, 9)));
      RunWithPoison(harness, poison, end, stages);
      const FinalEvent& last = harness.outcome(poison).ends.at(0);
      EXPECT_EQ(last.status.code(), StatusCode::kUnavailable);
      EXPECT_EQ(Message(last.status),
                "replayed too often: 3 pipelines were lost while they computed "
                "this request, limit 2; the latest: stage 1 is gone");
      for (const SequenceId id : good) {
        EXPECT_EQ(harness.outcome(id).result(),
                  Undisturbed(harness.request(id), kSmallVocab))
            << id << " of " << stages << " stages, end " << end;
      }
      EXPECT_EQ(harness.counters().recoveries, 3u);
    }
  }
}

TEST(SchedulerRecoveryTest, ASequenceThatGotOnHasAllItsTriesAgain) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId id = harness.Add(TestRequest(30, 40));
  for (uint64_t epoch = 2; epoch < 12; ++epoch) {
    harness.Plan();
    harness.Commit();  // the lost positions, and a token
    harness.Plan();
    harness.Suspend();
    harness.Attach(Epoch(epoch), 1);
  }
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).result(),
            Undisturbed(harness.request(id), kSmallVocab));
}

TEST(SchedulerRecoveryTest, WithoutReplaysWhatWasInFlightEnds) {
  EngineOptions options;
  options.max_replays = 0;
  options.max_running = 1;
  SchedulerHarness harness(options, TestLimits(100));
  const SequenceId computed = harness.Add(TestRequest(30, 40, 1));
  const SequenceId queued = harness.Add(TestRequest(30, 40, 2));
  harness.Plan();
  harness.Suspend();
  EXPECT_EQ(harness.outcome(computed).ends.at(0).reason, FinishReason::kError);
  harness.Attach(Epoch(2), 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(queued).result(),
            Undisturbed(harness.request(queued), kSmallVocab));
}

TEST(SchedulerRecoveryTest, TheShortestGoOnFirst) {
  EngineOptions options;
  options.max_step_tokens = 512;
  SchedulerHarness harness(options, TestLimits(400));
  const SequenceId longest = harness.Add(TestRequest(400, 40, 1));
  const SequenceId shortest = harness.Add(TestRequest(20, 40, 2));
  const SequenceId middle = harness.Add(TestRequest(60, 40, 3));
  while (harness.outcome(longest).tokens.empty()) {
    harness.Plan();
    harness.Commit();
  }
  harness.Suspend();
  harness.Attach(Epoch(2), 1);
  const std::optional<StepPlan> plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  ASSERT_GE(plan->started.size(), 2u);
  EXPECT_EQ(plan->started[0].sequence, shortest);
  EXPECT_EQ(plan->started[1].sequence, middle);
  harness.RunToEnd();
}

TEST(SchedulerRecoveryTest, SuspendedSequencesCountAndCanBeCancelled) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId kept = harness.Add(TestRequest(30, 10, 1));
  const SequenceId left = harness.Add(TestRequest(30, 10, 2));
  harness.Plan();
  harness.Commit();
  harness.Suspend();
  EXPECT_FALSE(harness.Plan().has_value());
  EXPECT_FALSE(harness.scheduler().quiet());
  const SequenceId added = harness.Add(TestRequest(30, 10, 3));
  EXPECT_EQ(harness.stats().suspended, 3);
  EXPECT_EQ(harness.stats().waiting, 3);
  EXPECT_EQ(harness.stats().blocks_used, 0);
  harness.End(left, FinishReason::kCancelled);
  EXPECT_EQ(harness.stats().suspended, 2);
  harness.Attach(Epoch(2), 1);
  EXPECT_EQ(harness.stats().suspended, 0);
  harness.RunToEnd();
  for (const SequenceId id : {kept, added}) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), kSmallVocab));
  }
}

TEST(SchedulerRecoveryTest, APipelineThatWillGoStartsNoQueuedSequence) {
  EngineOptions options;
  options.max_running = 1;
  SchedulerHarness harness(options, TestLimits(100));
  const SequenceId running = harness.Add(TestRequest(30, 5, 1));
  const SequenceId queued = harness.Add(TestRequest(30, 5, 2));
  harness.Plan();
  harness.scheduler().HoldStarts();
  EXPECT_FALSE(harness.stats().rests);
  while (harness.Commit()) {
    while (const auto plan = harness.Plan()) {
      EXPECT_FALSE(Carries(*plan, queued));
    }
  }
  EXPECT_EQ(harness.outcome(running).result(),
            Undisturbed(harness.request(running), kSmallVocab));
  EXPECT_TRUE(harness.stats().rests);
  harness.Suspend();
  harness.Attach(Epoch(2), 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(queued).result(),
            Undisturbed(harness.request(queued), kSmallVocab));
}

// Runs until all sequences decode and have some tokens.
void Warm(SchedulerHarness& harness, const std::vector<SequenceId>& ids) {
  for (int moves = 0; moves < 1000; ++moves) {
    while (harness.Plan()) {
    }
    if (std::ranges::all_of(ids, [&](SequenceId id) {
          return harness.outcome(id).tokens.size() >= 20;
        })) {
      return;
    }
    harness.Commit();
  }
  FAIL() << "no sequence got on";
}

TEST(SchedulerRecoveryTest, OnlyReplacedStagesComputeAgain) {
  for (const std::vector<int32_t>& lost :
       std::vector<std::vector<int32_t>>{{0}, {1}, {2}, {0, 2}, {}}) {
    SchedulerHarness harness({}, TestLimits(400), 3, /*logs=*/true);
    std::vector<SequenceId> ids;
    for (uint64_t i = 0; i < 8; ++i) {
      ids.push_back(harness.Add(TestRequest(100 + int(i), 60, i)));
    }
    Warm(harness, ids);
    harness.Suspend();
    int64_t tokens = 0;
    for (const SequenceId id : ids) {
      tokens += 100 + std::ssize(harness.outcome(id).tokens);
    }
    harness.AttachAgain(Epoch(2), lost);
    harness.RunToEnd();
    for (const SequenceId id : ids) {
      EXPECT_EQ(harness.outcome(id).result(),
                Undisturbed(harness.request(id), kSmallVocab));
    }
    // All but the last block of a sequence, which is not full.
    const int64_t most = 8 * (kBlockTokens + 2);
    if (lost.empty()) {
      EXPECT_EQ(harness.tokens_replayed(), 0);
      EXPECT_LE(harness.counters().replayed_tokens, uint64_t(most));
    } else {
      EXPECT_GT(harness.tokens_replayed(), tokens - most);
      EXPECT_EQ(harness.counters().kept_tokens,
                uint64_t(harness.tokens_replayed()));
    }
    // What the answers still lacked, and these blocks.
    EXPECT_LT(harness.tokens_computed(), 8 * 60 + most);
  }
}

TEST(SchedulerRecoveryTest, AStageLostEarlierStillLacksWhatWasNotReplayed) {
  SchedulerHarness harness({}, TestLimits(400), 3, /*logs=*/true);
  std::vector<SequenceId> ids;
  for (uint64_t i = 0; i < 4; ++i) {
    ids.push_back(harness.Add(TestRequest(300, 60, i)));
  }
  Warm(harness, ids);
  harness.Suspend();
  harness.AttachAgain(Epoch(2), {1});
  std::optional<StepPlan> plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->replay_at, std::vector<int32_t>{1});
  harness.Commit();
  harness.Suspend();
  harness.AttachAgain(Epoch(3), {2});
  plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->replay_at, (std::vector<int32_t>{1, 2}));
  harness.RunToEnd();
  for (const SequenceId id : ids) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), kSmallVocab));
  }
  EXPECT_EQ(harness.scheduler().state().sequences.blocks().num_stale(), 0);
}

TEST(SchedulerRecoveryTest, WhatNoSequenceWaitsForIsForgottenAtTheNextLoss) {
  SchedulerHarness harness({}, TestLimits(400), 3, /*logs=*/true);
  const SequenceId ended = harness.Add(TestRequest(200, 1, 7));
  while (harness.outcome(ended).ends.empty()) {
    harness.Plan();
    harness.Commit();
  }
  const SequenceId id = harness.Add(TestRequest(300, 200));
  Warm(harness, {id});
  harness.Suspend();
  harness.AttachAgain(Epoch(2), {1});
  const size_t tokens = harness.outcome(id).tokens.size();
  while (harness.outcome(id).tokens.size() < tokens + 10) {
    harness.Plan();
    harness.Commit();
  }
  EXPECT_GT(harness.scheduler().state().sequences.blocks().num_stale(), 0);
  harness.Suspend();
  harness.AttachAgain(Epoch(3), {2});
  const std::optional<StepPlan> plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->replay_at, std::vector<int32_t>{2});
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).result(),
            Undisturbed(harness.request(id), kSmallVocab));
}

TEST(SchedulerRecoveryTest, OneSequenceReplaysWhatSeveralShare) {
  SchedulerHarness harness({}, TestLimits(400), 2, /*logs=*/true);
  std::vector<SequenceId> ids;
  for (uint64_t i = 0; i < 8; ++i) {
    GenerateRequest request = TestRequest(160, 60, 1);
    request.sampling.seed = i;
    ids.push_back(harness.Add(std::move(request)));
  }
  Warm(harness, ids);
  harness.Suspend();
  harness.AttachAgain(Epoch(2), {0});
  harness.RunToEnd();
  for (const SequenceId id : ids) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), kSmallVocab));
  }
  // The prompt once, and the full blocks of each answer.
  EXPECT_LE(harness.tokens_replayed(), 160 + 8 * 60);
}

TEST(SchedulerRecoveryTest, AStageWithoutALogComputesWhatItHandsOn) {
  SchedulerHarness harness({}, TestLimits(400), 3);
  const SequenceId id = harness.Add(TestRequest(200, 60));
  Warm(harness, {id});
  harness.Suspend();
  harness.AttachAgain(Epoch(2), {1});
  const std::optional<StepPlan> plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->replay_at, (std::vector<int32_t>{0, 1}));
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).result(),
            Undisturbed(harness.request(id), kSmallVocab));
}

// A stage whose layers change has lost its KV cache; one that keeps them has
// not, though it is another one by number.
TEST(SchedulerRecoveryTest, OnlyStagesWithOtherLayersComputeAgain) {
  SchedulerHarness harness({}, TestLimits(400), 4, /*logs=*/true);
  std::vector<SequenceId> ids;
  for (uint64_t i = 0; i < 4; ++i) {
    ids.push_back(harness.Add(TestRequest(300, 60, i)));
  }
  Warm(harness, ids);
  const std::vector<std::vector<int32_t>> cuts = {
      {0, 1, 3}, {0, 3}, {0, 1, 2, 3}};
  const std::vector<std::vector<int32_t>> replayed = {{1}, {0, 1}, {0, 1, 2}};
  for (size_t i = 0; i < cuts.size(); ++i) {
    harness.Suspend();
    harness.AttachAgain(Epoch(2 + i), {}, cuts[i]);
    EXPECT_EQ(harness.num_stages(), static_cast<int>(cuts[i].size()));
    const std::optional<StepPlan> plan = harness.Plan();
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->replay_at, replayed[i]);
    harness.Commit();
  }
  harness.RunToEnd();
  for (const SequenceId id : ids) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), kSmallVocab));
  }
}

TEST(SchedulerRecoveryTest, APlannedLossBlamesNoSequence) {
  EngineOptions options;
  options.max_replays = 1;
  SchedulerHarness harness(options, TestLimits(400), 2, /*logs=*/true);
  const SequenceId id = harness.Add(TestRequest(40, 200));
  for (uint64_t epoch = 2; epoch < 8; ++epoch) {
    ASSERT_TRUE(harness.Plan().has_value());
    harness.SuspendByPlan();
    harness.AttachAgain(Epoch(epoch), {});
  }
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).result(),
            Undisturbed(harness.request(id), kSmallVocab));
}

// Runs sequences that end at any time, of which the long one does not fit the
// next pipeline.
class SmallerPipelineTest : public ::testing::Test {
 protected:
  SmallerPipelineTest() {
    for (const int most : {20, 60, 300}) {
      GenerateRequest request = TestRequest(40, most, uint64_t(most));
      request.eos_token_ids.clear();
      ids_.push_back(harness_.Add(std::move(request)));
    }
    Warm(harness_, {ids_[2]});
  }
  void AttachWith(int blocks) {
    harness_.Suspend();
    harness_.Resize(blocks);
    harness_.Attach(Epoch(++epoch_), 1);
  }
  void ExpectWhole(size_t index) const {
    EXPECT_EQ(harness_.outcome(ids_[index]).result(),
              Undisturbed(harness_.request(ids_[index]), kSmallVocab));
  }
  // Its tokens so far, whose end names the limit.
  size_t ExpectCutShort() const {
    const Outcome& outcome = harness_.outcome(ids_[2]);
    const Expected alone = Undisturbed(harness_.request(ids_[2]), kSmallVocab);
    EXPECT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(),
                           alone.tokens.begin()));
    EXPECT_EQ(outcome.ends.size(), 1u);
    if (outcome.ends.empty()) return 0;
    EXPECT_EQ(outcome.ends[0].status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(Message(outcome.ends[0].status),
                HasSubstr("the rebuilt pipeline is too small: the prompt has "
                          "40 tokens and max_tokens is 300"));
    return outcome.tokens.size();
  }

  SchedulerHarness harness_{{}, TestLimits(400), 2};
  std::vector<SequenceId> ids_;
  uint64_t epoch_ = 1;
};

TEST_F(SmallerPipelineTest, ASequenceGoesOnAsFarAsItFits) {
  AttachWith(10);
  EXPECT_TRUE(harness_.outcome(ids_[2]).ends.empty());
  harness_.RunToEnd();
  ExpectWhole(0);
  ExpectWhole(1);
  EXPECT_EQ(ExpectCutShort(), 160u - 40);
}

TEST_F(SmallerPipelineTest, OneThatHasNoRoomForItsNextTokenEndsAtOnce) {
  while (harness_.outcome(ids_[2]).tokens.size() < 130) {
    harness_.Plan();
    harness_.Commit();
  }
  const size_t before = harness_.outcome(ids_[2]).tokens.size();
  AttachWith(10);
  EXPECT_EQ(ExpectCutShort(), before);
  harness_.RunToEnd();
  ExpectWhole(0);
  ExpectWhole(1);
}

TEST_F(SmallerPipelineTest, OneThatAPipelineFitsAgainComesToItsOwnEnd) {
  AttachWith(10);
  ASSERT_TRUE(harness_.Plan().has_value());
  harness_.Commit();
  AttachWith(400);
  harness_.RunToEnd();
  for (size_t i = 0; i < ids_.size(); ++i) ExpectWhole(i);
}

}  // namespace
}  // namespace sluice
