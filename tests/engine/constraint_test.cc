// Sequences that a constraint holds: when they wait, when they end, and what
// the others notice of it. scheduler_law_test.cc has the laws.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/engine/engine_loop.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fake_constraint.h"
#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

constexpr int32_t kVocabSize = 50;

GenerateRequest Constrained(const FakeGrammar& grammar,
                            std::shared_ptr<HeldSteps> held = nullptr,
                            int max_tokens = 40) {
  GenerateRequest request = TestRequest(20, max_tokens);
  request.constraint =
      std::make_shared<FakeConstraint>(grammar, std::move(held));
  return request;
}

bool Carries(const StepPlan& plan, SequenceId id) {
  return std::ranges::any_of(
      plan.chunks, [&](const Chunk& chunk) { return chunk.sequence == id; });
}

TEST(ConstraintTest, AMaskThatIsLateDelaysItsOwnSequence) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId plain = harness.Add(TestRequest(20, 10, 2));
  const SequenceId held =
      harness.Add(Constrained({}, harness.held_steps(), 10));
  // The prompt is computed but for the position that draws.
  std::optional<StepPlan> plan = harness.Plan();
  ASSERT_TRUE(plan && plan->chunks.size() == 2);
  for (const Chunk& chunk : plan->chunks) {
    EXPECT_EQ(chunk.samples, chunk.sequence == plain);
    EXPECT_EQ(chunk.tokens.size(), chunk.sequence == plain ? 20u : 19u);
  }
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(harness.Commit());
    harness.set_now(Clock::now() + std::chrono::seconds(i + 1));
    plan = harness.Plan();
    ASSERT_TRUE(plan.has_value());
    EXPECT_TRUE(Carries(*plan, plain));
    EXPECT_FALSE(Carries(*plan, held));
  }
  ASSERT_TRUE(harness.held_steps()->Release());
  ASSERT_TRUE(harness.Commit());
  plan = harness.Plan();
  ASSERT_TRUE(plan && Carries(*plan, held));
  harness.RunToEnd();
  for (const SequenceId id : {plain, held}) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), kVocabSize));
  }
}

// A plan waits a part of a step for masks, so that sequences stay together; not
// for one that was late.
TEST(ConstraintTest, APlanWaitsAMomentForMasks) {
  SchedulerHarness harness({}, TestLimits(100));
  TimePoint now = Clock::now();
  const auto advance = [&](int64_t ms) {
    now += std::chrono::milliseconds(ms);
    harness.set_now(now);
  };
  const SequenceId plain = harness.Add(TestRequest(20, 20, 2));
  const SequenceId held =
      harness.Add(Constrained({}, harness.held_steps(), 20));
  harness.held_steps()->Release();
  advance(0);
  ASSERT_TRUE(harness.Plan());
  advance(32);
  ASSERT_TRUE(harness.Commit());  // the step took 32 ms, an eighth is 4
  advance(1);
  EXPECT_FALSE(harness.Plan());
  EXPECT_EQ(harness.scheduler().next_deadline(),
            now + std::chrono::milliseconds(3));
  ASSERT_TRUE(harness.held_steps()->Release());
  std::optional<StepPlan> plan = harness.Plan();
  ASSERT_TRUE(plan && Carries(*plan, plain) && Carries(*plan, held));
  EXPECT_EQ(harness.scheduler().next_deadline(), TimePoint::max());
  advance(32);
  ASSERT_TRUE(harness.Commit());
  advance(5);  // late
  plan = harness.Plan();
  ASSERT_TRUE(plan && Carries(*plan, plain) && !Carries(*plan, held));
  ASSERT_TRUE(harness.held_steps()->Release());
  advance(27);
  ASSERT_TRUE(harness.Commit());
  plan = harness.Plan();
  ASSERT_TRUE(plan && Carries(*plan, held));
  advance(32);
  ASSERT_TRUE(harness.Commit());
  EXPECT_TRUE(harness.Plan());  // the others wait for it no more
  harness.RunToEnd();
}

TEST(ConstraintTest, AloneItWaitsWithoutPlans) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId id = harness.Add(Constrained({}, harness.held_steps(), 3));
  ASSERT_TRUE(harness.Plan());
  ASSERT_TRUE(harness.Commit());
  EXPECT_FALSE(harness.Plan());
  EXPECT_FALSE(harness.Plan());
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).tokens.size(), 3u);
}

TEST(ConstraintTest, ACompleteAnswerEndsWithStop) {
  for (const int32_t complete_at : {0, 1, 9}) {
    SchedulerHarness harness({}, TestLimits(100));
    GenerateRequest request = Constrained({.complete_at = complete_at});
    request.sampling.min_tokens = 30;  // and no end token at all
    const SequenceId id = harness.Add(std::move(request));
    harness.RunToEnd();
    const Outcome& outcome = harness.outcome(id);
    EXPECT_EQ(outcome.ends.at(0).reason, FinishReason::kStop);
    EXPECT_FALSE(outcome.ends[0].stop_token.has_value());
    EXPECT_EQ(std::ssize(outcome.tokens), complete_at);
  }
}

TEST(ConstraintTest, AFailureEndsItsOwnSequence) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId plain = harness.Add(TestRequest(20, 10, 2));
  const SequenceId fails = harness.Add(Constrained({.fails_at = 4}));
  harness.RunToEnd();
  const FinalEvent& end = harness.outcome(fails).ends.at(0);
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(end.status.message(), "the grammar fails");
  EXPECT_EQ(harness.outcome(fails).tokens.size(), 4u);
  EXPECT_EQ(harness.outcome(plain).tokens.size(), 10u);
}

TEST(ConstraintTest, ForcedTokensSaveSteps) {
  uint64_t steps[2];
  std::vector<TokenId> tokens[2];
  for (const bool takes_forced : {false, true}) {
    SchedulerHarness harness({}, TestLimits(100));
    const SequenceId id = harness.Add(
        Constrained({.forced_runs = 8, .takes_forced = takes_forced}));
    harness.RunToEnd();
    steps[takes_forced] = harness.counters().steps;
    tokens[takes_forced] = harness.outcome(id).tokens;
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(tokens[0].size(), 40u);
  EXPECT_LT(steps[1], steps[0] / 2);
}

TEST(ConstraintTest, MaxTokensMayCutAForcedRun) {
  for (int max_tokens = 1; max_tokens < 25; ++max_tokens) {
    SchedulerHarness harness({}, TestLimits(100));
    const SequenceId id =
        harness.Add(Constrained({.forced_runs = 10}, nullptr, max_tokens));
    harness.RunToEnd();
    EXPECT_EQ(std::ssize(harness.outcome(id).tokens), max_tokens);
    EXPECT_EQ(harness.outcome(id).ends.at(0).reason, FinishReason::kLength);
  }
}

TEST(ConstraintTest, ASequenceThatWaitsEndsByCancelAndDeadline) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId cancelled =
      harness.Add(Constrained({}, harness.held_steps()));
  GenerateRequest request = Constrained({}, harness.held_steps());
  const TimePoint now = Clock::now();
  request.deadline = now + std::chrono::seconds(1);
  const SequenceId late = harness.Add(std::move(request));
  ASSERT_TRUE(harness.Plan());
  ASSERT_TRUE(harness.Commit());
  harness.End(cancelled, FinishReason::kCancelled);
  harness.Take(harness.scheduler().Expire(now + std::chrono::seconds(2)));
  EXPECT_EQ(harness.outcome(late).ends.at(0).status.code(),
            absl::StatusCode::kDeadlineExceeded);
  // Steps that come later change nothing.
  harness.RunToEnd();
}

// A step that no stage would take ends its own sequence.
TEST(ConstraintTest, ABadStepEndsItsOwnSequence) {
  class Bad : public TokenConstraint {
   public:
    explicit Bad(ConstraintStep step) : step_(std::move(step)) {}
    void Advance(std::span<const TokenId>,
                 std::function<void()> ready) override {
      ready();
    }
    const ConstraintStep* Latest() const override { return &step_; }

   private:
    const ConstraintStep step_;
  };
  std::vector<ConstraintStep> steps(3);
  steps[0].forced = {kVocabSize};
  steps[1].mask = TokenMask{.runs = {{3, kVocabSize + 1}}};
  steps[2].mask = TokenMask{};  // allows nothing
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId plain = harness.Add(TestRequest(20, 10, 2));
  std::vector<SequenceId> bad;
  for (const ConstraintStep& step : steps) {
    GenerateRequest request = TestRequest(20, 10);
    request.constraint = std::make_shared<Bad>(step);
    bad.push_back(harness.Add(std::move(request)));
  }
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(plain).tokens.size(), 10u);
  for (const SequenceId id : bad) {
    EXPECT_EQ(harness.outcome(id).ends.at(0).reason, FinishReason::kError);
  }
}

// Without a token to draw the constraint is of no account.
TEST(ConstraintTest, AnEchoWaitsForNoMask) {
  SchedulerHarness harness({}, TestLimits(100));
  GenerateRequest request = Constrained({}, harness.held_steps(), 0);
  const SequenceId id = harness.Add(std::move(request));
  ASSERT_TRUE(harness.Plan());
  ASSERT_TRUE(harness.Commit());
  EXPECT_EQ(harness.outcome(id).ends.at(0).reason, FinishReason::kLength);
}

// Masks beyond a plan's bound wait for the next plan.
TEST(ConstraintTest, MasksOfManySequencesGoIntoSeveralPlans) {
  PlanLimits limits = TestLimits(100);
  limits.vocab_size = 1 << 19;
  TokenMask every_other;
  for (TokenId id = 0; id < limits.vocab_size; id += 2) {
    every_other.runs.push_back({id, id + 1});
  }
  class Same : public TokenConstraint {
   public:
    explicit Same(TokenMask mask) { step_.mask = std::move(mask); }
    void Advance(std::span<const TokenId>,
                 std::function<void()> ready) override {
      ready();
    }
    const ConstraintStep* Latest() const override { return &step_; }

   private:
    ConstraintStep step_;
  };
  EngineCounters counters;
  std::vector<SequenceId> notices;
  Scheduler scheduler({}, &counters,
                      [&](SequenceId id) { notices.push_back(id); });
  scheduler.Attach(Epoch(1), limits, 1);
  for (uint64_t i = 1; i <= 5; ++i) {
    GenerateRequest request = TestRequest(20, 10);
    request.constraint = std::make_shared<Same>(every_other);
    scheduler.Add(SequenceId(i), std::move(request), nullptr);
  }
  for (const SequenceId id : notices) {
    scheduler.OnConstraintReady(id, Clock::now());
  }
  const std::optional<StepPlan> plan = scheduler.Plan(Clock::now());
  ASSERT_TRUE(plan.has_value());
  EXPECT_TRUE(Validate(*plan, limits).ok());
  EXPECT_EQ(std::ranges::count_if(plan->chunks, &Chunk::samples), 3);
}

TEST(ConstraintTest, AOneTokenPromptWaitsForItsMaskBeforeItStarts) {
  SchedulerHarness harness({}, TestLimits(100));
  GenerateRequest request = Constrained({}, harness.held_steps(), 5);
  request.prompt_tokens = {7};
  const SequenceId held = harness.Add(std::move(request));
  const SequenceId plain = harness.Add(TestRequest(20, 5, 2));
  const std::optional<StepPlan> plan = harness.Plan();
  ASSERT_TRUE(plan && Carries(*plan, plain));
  EXPECT_FALSE(Carries(*plan, held));
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(held).tokens.size(), 5u);
}

TEST(ConstraintTest, ConstrainedSequencesDoNotGoAhead) {
  EngineOptions options;
  options.ahead_within = kAlwaysAhead;
  SchedulerHarness harness(options, TestLimits(100));
  const SequenceId plain = harness.Add(TestRequest(20, 20, 2));
  const SequenceId held = harness.Add(Constrained({}, nullptr, 20));
  while (harness.num_live() > 0) {
    while (const std::optional<StepPlan> plan = harness.Plan()) {
      for (const Chunk& chunk : plan->chunks) {
        EXPECT_FALSE(chunk.sequence == held && chunk.sampled_by);
      }
    }
    if (!harness.Commit()) break;
  }
  harness.RunToEnd();
  EXPECT_GT(harness.chunks_ahead(), 10);
  for (const SequenceId id : {plain, held}) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), kVocabSize));
  }
}

// Its token would come a plan later.
TEST(ConstraintTest, NoPromptsGoAheadBesideASequenceThatWaitsForAMask) {
  for (const bool waits : {false, true}) {
    EngineOptions options;
    options.ahead_within = kAlwaysAhead;
    options.max_step_tokens = 16;
    SchedulerHarness harness(options, TestLimits(100), /*num_stages=*/2);
    GenerateRequest request = Constrained({}, harness.held_steps(), 5);
    if (!waits) request.constraint = nullptr;
    if (!waits) request.max_tokens = 1;
    harness.Add(std::move(request));
    harness.RunUntilNothingIsPlanned();
    harness.Add(TestRequest(16 * 6, 1, 2));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(harness.Plan());
    EXPECT_EQ(harness.Plan().has_value(), !waits);
    harness.RunToEnd();
  }
}

// Steps come from another thread, late; at the end one comes to an engine that
// is gone.
TEST(ConstraintTest, TheEngineWakesUpForAStep) {
  // A constraint whose steps come from a thread for each.
  class Threaded : public TokenConstraint {
   public:
    explicit Threaded(int32_t complete_at)
        : grammar_{.complete_at = complete_at} {}
    ~Threaded() override {
      for (std::thread& thread : threads_) thread.join();
    }
    void Advance(std::span<const TokenId> appended,
                 std::function<void()> ready) override {
      MutexLock lock(mutex_);
      num_tokens_ += static_cast<int32_t>(appended.size());
      is_ready_ = false;
      threads_.emplace_back([this, ready = std::move(ready)] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        {
          MutexLock inner(mutex_);
          step_ = grammar_.At(num_tokens_);
          is_ready_ = true;
        }
        ready();
      });
    }
    const ConstraintStep* Latest() const override {
      MutexLock lock(mutex_);
      return is_ready_ ? &step_ : nullptr;
    }

   private:
    const FakeGrammar grammar_;
    mutable Mutex mutex_;
    std::vector<std::thread> threads_;
    int32_t num_tokens_ = 0;
    bool is_ready_ = false;
    ConstraintStep step_;
  };

  auto held = std::make_shared<HeldSteps>();
  const auto left = std::make_shared<FakeConstraint>(FakeGrammar{}, held);
  {
    ThreadedPipeline pipeline(TestLimits(100));
    EngineLoop loop({}, &pipeline);
    pipeline.Start(&loop);
    ASSERT_TRUE(loop.Start().ok());
    loop.OnPipelineUp(Epoch(1), TestLimits(100), 1);
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 6; ++i) {
      GenerateRequest request = TestRequest(20, 30, static_cast<uint64_t>(i));
      request.request_id = std::to_string(i);
      request.constraint = std::make_shared<Threaded>(i == 5 ? 12 : -1);
      sinks.push_back(std::make_shared<RecordingSink>());
      ASSERT_TRUE(loop.Submit(std::move(request), sinks.back()).ok());
    }
    for (int i = 0; i < 6; ++i) {
      const FinalEvent end = sinks[static_cast<size_t>(i)]->WaitForEnd();
      EXPECT_EQ(end.reason,
                i == 5 ? FinishReason::kStop : FinishReason::kLength);
      EXPECT_EQ(sinks[static_cast<size_t>(i)]->tokens().size(),
                i == 5 ? 12u : 30u);
    }
    GenerateRequest request = TestRequest(20, 30);
    request.constraint = left;
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(loop.Submit(std::move(request), sinks.back()).ok());
    loop.Stop();
    pipeline.Stop();
    EXPECT_EQ(sinks.back()->WaitForEnd().reason, FinishReason::kError);
  }
  while (held->Release()) {
  }
}

}  // namespace
}  // namespace sluice
