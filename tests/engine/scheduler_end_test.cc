#include <gtest/gtest.h>

#include "common/engine/scheduler.h"
#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

TEST(SchedulerEndTest, AnEndTokenIsNotDeliveredAndNamedInTheEnd) {
  SchedulerHarness harness({}, TestLimits(100));
  GenerateRequest request = TestRequest(10, 30);
  const Expected free_run = Undisturbed(request, 50);
  request.eos_token_ids = {free_run.tokens[5]};
  const SequenceId id = harness.Add(request);
  harness.RunToEnd();
  const Outcome& outcome = harness.outcome(id);
  EXPECT_EQ(outcome.ends[0].reason, FinishReason::kStop);
  EXPECT_EQ(outcome.ends[0].stop_token, free_run.tokens[5]);
  EXPECT_EQ(outcome.ends[0].stop_result.token, free_run.tokens[5]);
  EXPECT_LE(outcome.tokens.size(), 5u);
  EXPECT_EQ(outcome.ends[0].stats.completion_tokens,
            static_cast<int32_t>(outcome.tokens.size()));
}

TEST(SchedulerEndTest, BeforeMinTokensAnEndTokenIsATokenLikeAnyOther) {
  SchedulerHarness harness({}, TestLimits(100));
  GenerateRequest request = TestRequest(10, 8);
  for (TokenId t = 0; t < 50; ++t) request.eos_token_ids.push_back(t);
  request.sampling.min_tokens = 5;
  const SequenceId id = harness.Add(request);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).tokens.size(), 5u);
  EXPECT_EQ(harness.outcome(id).ends[0].reason, FinishReason::kStop);
}

TEST(SchedulerEndTest, AFailedSequenceEndsAloneWithItsStatus) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId bad = harness.Add(TestRequest(10, 8, 1));
  const SequenceId good = harness.Add(TestRequest(10, 8, 2));
  harness.Plan();
  harness.NextResult().sequences[0].status = DataLoss("logits are not finite");
  harness.NextResult().sequences[0].sampled.clear();
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(bad).ends[0].reason, FinishReason::kError);
  EXPECT_EQ(harness.outcome(bad).ends[0].status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(harness.outcome(good).result(),
            Undisturbed(harness.request(good), 50));
}

TEST(SchedulerEndTest, ADeadlineEndsWaitingAndRunningSequences) {
  EngineOptions options;
  options.max_running = 1;
  SchedulerHarness harness(options, TestLimits(100));
  const TimePoint start = Clock::now();
  GenerateRequest request = TestRequest(10, 8);
  request.deadline = start + std::chrono::seconds(5);
  const SequenceId running = harness.Add(request);
  request.deadline = start + std::chrono::seconds(3);
  const SequenceId waiting = harness.Add(request);
  harness.Plan();
  EXPECT_EQ(harness.scheduler().next_deadline(),
            start + std::chrono::seconds(3));
  harness.Take(harness.scheduler().Expire(start + std::chrono::seconds(4)));
  EXPECT_EQ(harness.outcome(waiting).ends.size(), 1u);
  EXPECT_TRUE(harness.outcome(running).ends.empty());
  harness.Take(harness.scheduler().Expire(start + std::chrono::seconds(5)));
  EXPECT_EQ(harness.outcome(running).ends[0].status.code(),
            StatusCode::kDeadlineExceeded);
  harness.RunToEnd();
}

TEST(SchedulerEndTest, DetachEndsAllAndForgetsThePlansInFlight) {
  SchedulerHarness harness({}, TestLimits(100), /*num_stages=*/2);
  const SequenceId id = harness.Add(TestRequest(10, 8));
  harness.Plan();
  harness.Take(harness.scheduler().Detach(Unavailable("stage 1 is gone")));
  EXPECT_EQ(Message(harness.outcome(id).ends[0].status), "stage 1 is gone");
  EXPECT_FALSE(harness.scheduler().Plan(Clock::now()).has_value());
  EXPECT_EQ(harness.scheduler().state().in_flight.size(), 0u);
}

TEST(SchedulerEndTest, AttachEndsWhatTheNewPipelineCannotHold) {
  EngineCounters counters;
  Scheduler scheduler({}, &counters);
  scheduler.Attach(Epoch(1), TestLimits(100), 1);
  scheduler.Add(SequenceId(1), TestRequest(100, 10), nullptr);
  scheduler.Add(SequenceId(2), TestRequest(10, 10), nullptr);
  const SequenceEvents events = scheduler.Attach(Epoch(2), TestLimits(4), 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].sequence, SequenceId(1));
  EXPECT_EQ(std::get<FinalEvent>(events[0].what).status.code(),
            StatusCode::kUnavailable);
  EXPECT_TRUE(scheduler.CheckIntegrity().ok());
}

// Each way in which a result can fail to be the answer to its plan.
class RefusedResultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    first_ = harness_.Add(TestRequest(10, 8, 1));
    second_ = harness_.Add(TestRequest(10, 8, 2));
    harness_.Plan();
  }
  // The result changed by `change` is refused as a whole.
  template <typename F>
  void ExpectPipelineBroken(F change) {
    StepResult result = harness_.NextResult();
    change(result);
    const auto events =
        harness_.scheduler().Commit(std::move(result), Clock::now());
    EXPECT_EQ(events.status().code(), StatusCode::kInternal);
    harness_.Check();
    harness_.RunToEnd();  // the true result still fits
    EXPECT_EQ(harness_.outcome(first_).result(),
              Undisturbed(harness_.request(first_), 50));
  }
  // The result changed by `change` ends the first sequence only.
  template <typename F>
  void ExpectFirstEnds(F change) {
    change(harness_.NextResult());
    harness_.RunToEnd();
    const FinalEvent& end = harness_.outcome(first_).ends.at(0);
    EXPECT_EQ(end.status.code(), StatusCode::kInternal) << end.status;
    EXPECT_EQ(harness_.outcome(second_).result(),
              Undisturbed(harness_.request(second_), 50));
    EXPECT_EQ(harness_.counters().refused_results, 1u);
  }

  SchedulerHarness harness_{{}, TestLimits(100)};
  SequenceId first_, second_;
};

TEST_F(RefusedResultTest, AnotherStepIsRefused) {
  ExpectPipelineBroken([](StepResult& r) { r.step_id = StepId(7); });
}
TEST_F(RefusedResultTest, AnotherReplicaIsRefused) {
  ExpectPipelineBroken([](StepResult& r) { r.replica = ReplicaId(7); });
}
TEST_F(RefusedResultTest, AnUnknownSequenceIsRefused) {
  ExpectPipelineBroken(
      [](StepResult& r) { r.sequences[0].sequence = SequenceId(99); });
}
TEST_F(RefusedResultTest, OneSequenceTwiceIsRefused) {
  ExpectPipelineBroken(
      [](StepResult& r) { r.sequences[1].sequence = r.sequences[0].sequence; });
}
TEST_F(RefusedResultTest, AnOlderEpochIsDroppedAndCounted) {
  StepResult result = harness_.NextResult();
  result.epoch = Epoch(0);
  EXPECT_TRUE(harness_.scheduler().Commit(result, Clock::now())->empty());
  EXPECT_EQ(harness_.counters().stale_results, 1u);
  harness_.RunToEnd();
}
TEST_F(RefusedResultTest, NoTokenWhereOneWasWantedEndsTheSequence) {
  ExpectFirstEnds([](StepResult& r) { r.sequences[0].sampled.clear(); });
}
TEST_F(RefusedResultTest, TwoTokensWhereOneWasWantedEndTheSequence) {
  ExpectFirstEnds([](StepResult& r) {
    r.sequences[0].sampled.push_back(r.sequences[0].sampled[0]);
  });
}
TEST_F(RefusedResultTest, ATokenOutsideTheVocabularyEndsTheSequence) {
  ExpectFirstEnds([](StepResult& r) { r.sequences[0].sampled[0].token = 50; });
}
TEST_F(RefusedResultTest, ANegativeTokenEndsTheSequence) {
  ExpectFirstEnds([](StepResult& r) { r.sequences[0].sampled[0].token = -1; });
}
TEST_F(RefusedResultTest, AMissingSequenceEnds) {
  ExpectFirstEnds(
      [](StepResult& r) { r.sequences.erase(r.sequences.begin()); });
}

TEST(RefusedPromptTest, WrongPromptLogprobsEndTheSequence) {
  const auto run = [](auto change) {
    SchedulerHarness harness({}, TestLimits(100));
    GenerateRequest request = TestRequest(10, 2);
    request.sampling.prompt_logprobs = 1;
    request.sampling.logprobs = 1;
    request.sampling.return_logits = true;
    const SequenceId id = harness.Add(request);
    harness.Plan();
    change(harness.NextResult().sequences[0]);
    harness.RunToEnd();
    return harness.outcome(id).ends.at(0).status;
  };
  using R = SequenceResult&;
  EXPECT_TRUE(run([](R) {}).ok());
  EXPECT_FALSE(run([](R r) { r.prompt.pop_back(); }).ok());
  EXPECT_FALSE(run([](R r) { r.prompt[2].token ^= 1; }).ok());
  EXPECT_FALSE(run([](R r) { r.prompt[2].logprob.reset(); }).ok());
  EXPECT_FALSE(run([](R r) { r.prompt[2].top_logprobs[0].token = 50; }).ok());
  EXPECT_FALSE(run([](R r) { r.sampled[0].logprob.reset(); }).ok());
  EXPECT_FALSE(run([](R r) { r.sampled[0].top_logprobs.resize(2); }).ok());
  EXPECT_FALSE(run([](R r) { r.logits.pop_back(); }).ok());
}

TEST(RequestCheckTest, NamesWhatDoesNotFit) {
  PlanLimits limits = TestLimits(4);
  limits.max_context = 100;
  const auto check = [&](int prompt, int max_tokens) {
    return CheckRequest(TestRequest(prompt, max_tokens), limits);
  };
  EXPECT_TRUE(check(60, 5).ok()) << "the last token is never computed";
  EXPECT_EQ(Message(check(60, 6)),
            "the prompt has 60 tokens and max_tokens is 6; the KV cache holds "
            "64 positions");
  EXPECT_EQ(Message(check(60, 41)),
            "the prompt has 60 tokens and max_tokens is 41, together 101; the "
            "context limit is 100");
  EXPECT_EQ(check(0, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(check(1, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(check(1, 2147483647).code(), StatusCode::kInvalidArgument);
  GenerateRequest request = TestRequest(3, 1);
  request.prompt_tokens[1] = 50;
  EXPECT_EQ(Message(CheckRequest(request, limits)),
            "prompt token 1 is 50, vocabulary size is 50");
  request = TestRequest(3, 1);
  request.sampling.top_p = 0;
  EXPECT_EQ(CheckRequest(request, limits).code(), StatusCode::kInvalidArgument);
}

TEST(SequenceTest, StartsWithThePromptAndWhatWasEmitted) {
  Sequence sequence(SequenceId(3), TestRequest(4, 9, /*seed=*/5), nullptr);
  EXPECT_TRUE(sequence.request.prompt_tokens.empty());
  sequence.tokens.push_back(17);
  sequence.tokens.push_back(18);
  EXPECT_EQ(sequence.num_emitted(), 2);
  const StartedSequence started = sequence.Started();
  EXPECT_EQ(started.sequence, SequenceId(3));
  EXPECT_EQ(started.num_prompt_tokens, 4);
  EXPECT_EQ(started.sampling.seed, 5u);
  ASSERT_EQ(started.tokens.size(), 6u);
  EXPECT_EQ(started.tokens[5], 18);
}

TEST(SequenceStoreTest, ForgetsWhatIsErased) {
  SequenceStore sequences;
  sequences.Add(SequenceId(1), TestRequest(4, 9), nullptr);
  EXPECT_EQ(sequences.num_waiting(), 1u);
  ASSERT_NE(sequences.Find(SequenceId(1)), nullptr);
  sequences.Erase(*sequences.Find(SequenceId(1)));
  EXPECT_EQ(sequences.Find(SequenceId(1)), nullptr);
  EXPECT_TRUE(sequences.queue().clients().empty());
  EXPECT_TRUE(sequences.CheckIntegrity().ok());
}

}  // namespace
}  // namespace sluice
