// The same tokens come out however the work is cut, and no block is ever read
// that holds another history. Randomised, seeded; the fake pipeline checks
// every slot that a step reads.
// Size: all laws are one random run with other shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

constexpr int kVocab = 50;

struct Shape {
  int num_blocks = 400;
  std::vector<int32_t> windows = {0};  // of the KV groups
  int step_tokens = 512;               // the pipeline's limit
  int num_stages = 1;
  EngineOptions options;
  // Half of the requests have a constraint; steps come late.
  bool constrained = false;
  bool takes_forced = true;
};

// Prompts of few kinds, so that prefixes are shared; all sorts of ends.
GenerateRequest RandomRequest(std::mt19937& random, int max_positions) {
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<uint32_t>(n));
  };
  GenerateRequest request;
  const int length = 1 + pick(max_positions * 2 / 3);
  const int kind = pick(3);
  for (int i = 0; i < length; ++i) {
    const bool own = pick(40) == 0;
    request.prompt_tokens.push_back(own ? pick(kVocab) : (i * 3 + kind) % 50);
  }
  request.max_tokens = pick(10) == 0 ? 0 : pick(max_positions - length) + 1;
  request.sampling.seed = random();
  if (pick(2) == 0) request.eos_token_ids = {pick(kVocab)};
  if (pick(4) == 0) request.sampling.stop_token_ids = {pick(kVocab)};
  if (pick(3) == 0) request.sampling.min_tokens = pick(8);
  if (pick(4) == 0) request.sampling.logprobs = pick(3);
  if (pick(8) == 0) request.sampling.prompt_logprobs = pick(3);
  if (pick(16) == 0) request.sampling.return_logits = true;
  if (pick(8) == 0) request.cache_salt = "tenant";
  const char* const tenants[] = {"", "a", "b"};
  request.tenant = request.client = tenants[pick(3)];
  return request;
}

std::shared_ptr<TokenConstraint> RandomConstraint(
    std::mt19937& random, const Shape& shape,
    const std::shared_ptr<HeldSteps>& held) {
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<uint32_t>(n));
  };
  FakeGrammar grammar;
  grammar.seed = random();
  grammar.vocab_size = kVocab;
  grammar.forced_runs = pick(6);
  if (pick(2) == 0) grammar.complete_at = pick(60);
  if (pick(10) == 0) grammar.fails_at = pick(60);
  grammar.takes_forced = shape.takes_forced;
  return std::make_shared<FakeConstraint>(grammar,
                                          pick(3) == 0 ? nullptr : held);
}

PlanLimits LimitsOf(const Shape& shape) {
  PlanLimits limits = TestLimits(shape.num_blocks);
  limits.num_kv_groups = static_cast<int32_t>(shape.windows.size());
  limits.kv_windows = shape.windows;
  limits.max_step_tokens = shape.step_tokens;
  limits.max_context =
      static_cast<int32_t>(std::min<int64_t>(1024, MaxPositions(limits)));
  return limits;
}

void ExpectAsAlone(const SchedulerHarness& harness, SequenceId id) {
  const Outcome& outcome = harness.outcome(id);
  ASSERT_EQ(outcome.ends.size(), 1u);
  const GenerateRequest& request = harness.request(id);
  const Expected alone = Undisturbed(request, kVocab);
  const FinishReason reason = outcome.ends[0].reason;
  const std::string why = Message(outcome.ends[0].status);
  const bool is_injected =
      why == "injected" || why.starts_with("replayed too often");
  if (reason == FinishReason::kCancelled || is_injected) {
    ASSERT_LE(outcome.tokens.size(), alone.tokens.size());
    EXPECT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(),
                           alone.tokens.begin()));
    return;
  }
  EXPECT_EQ(outcome.tokens, alone.tokens);
  EXPECT_EQ(reason, alone.reason);
  if (request.sampling.prompt_logprobs >= 0) {
    ASSERT_EQ(outcome.prompt.size(), request.prompt_tokens.size() - 1);
    for (size_t i = 0; i < outcome.prompt.size(); ++i) {
      EXPECT_EQ(outcome.prompt[i].token, request.prompt_tokens[i + 1]);
    }
  }
  if (request.sampling.return_logits) {
    // Rows of all positions but the last token's, which is never computed.
    size_t rows = request.prompt_tokens.size() + outcome.tokens.size();
    const bool by_constraint =
        reason == FinishReason::kError ||
        (reason == FinishReason::kStop && !outcome.ends[0].stop_token);
    if (by_constraint ||
        (reason == FinishReason::kLength && request.max_tokens > 0)) {
      --rows;
    }
    EXPECT_EQ(outcome.logits.size(), rows * kVocab);
  }
}

struct Totals {
  EngineCounters counters;
  int max_plans = 0;
  uint64_t epochs = 1;
  int64_t ahead = 0;  // chunks whose token was not known, of the last epoch
};

// Runs `num_requests` random requests with random arrivals, cancels, failures
// and delays of results; every outcome must be as if it ran alone.
Totals RunRandom(const Shape& shape, uint32_t seed, int num_requests,
                 bool rebuilds = false) {
  std::mt19937 random(seed);
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<uint32_t>(n));
  };
  SchedulerHarness harness(shape.options, LimitsOf(shape), shape.num_stages);
  const int max_positions = std::min(200, harness.limits().max_context);
  int added = 0;
  TimePoint now = Clock::now();
  Totals totals;
  uint64_t& epoch = totals.epochs;
  while (added < num_requests || harness.num_live() > 0) {
    if (added < num_requests && pick(3) == 0) {
      GenerateRequest request = RandomRequest(random, max_positions);
      const bool constrained = shape.constrained && pick(2) == 0;
      request.num_choices = pick(4) == 0 ? 2 + pick(3) : 1;
      request.request_id = std::to_string(added);
      for (int i = 0; i < request.num_choices; ++i) {
        if (constrained) {
          request.constraint =
              RandomConstraint(random, shape, harness.held_steps());
        }
        request.sampling.choice = static_cast<uint32_t>(i);
        request.sampling.seed += static_cast<uint64_t>(i);
        const SequenceId id = harness.Add(request);
        ++added;
        if (pick(20) == 0) harness.End(id, FinishReason::kCancelled);
      }
    }
    if (pick(50) == 0 && added > 0) {
      harness.End(SequenceId(1 + static_cast<uint64_t>(pick(added))),
                  FinishReason::kCancelled);
    }
    if (pick(3) == 0) harness.held_steps()->Release();
    if (!harness.scheduler().attached()) {
      if (pick(20) == 0) harness.Attach(Epoch(++epoch), shape.num_stages);
    } else if (rebuilds && pick(200) == 0) {
      harness.Suspend();
    }
    if (pick(300) == 0 && harness.results_out() > 0 &&
        !harness.NextResult().sequences.empty()) {
      harness.NextResult().sequences[0].status = Internal("injected");
    }
    // Steps take anything from nothing to seconds, so that plans are of all
    // sizes.
    now += std::chrono::microseconds(pick(40) == 0 ? pick(2000000) : pick(900));
    harness.set_now(now);
    if (pick(2) == 0) {
      harness.Plan();
    } else {
      harness.Commit();
    }
    if (::testing::Test::HasFailure()) return totals;
  }
  if (!harness.scheduler().attached()) {
    harness.Attach(Epoch(++epoch), shape.num_stages);
  }
  harness.RunToEnd();
  for (const auto& [id, outcome] : harness.outcomes()) {
    ExpectAsAlone(harness, id);
    if (::testing::Test::HasFailure()) break;
  }
  totals.counters = harness.counters();
  EngineStats stats;
  harness.scheduler().FillStats(stats);
  totals.max_plans = stats.max_plans_in_flight_seen;
  totals.ahead = harness.chunks_ahead();
  return totals;
}

TEST(SchedulerLawTest, BatchedSequencesGetTheTokensTheyGetAlone) {
  const Totals totals = RunRandom({}, 1, 200);
  EXPECT_GT(totals.counters.steps_with_several_sequences, 100u);
  EXPECT_GT(totals.counters.prefix_hit_tokens, 100u);
}

TEST(SchedulerLawTest, ChunkSizeChangesNoToken) {
  for (int chunk : {1, 5, 16, 17, 64, 0}) {
    Shape shape;
    shape.options.prefill_chunk = chunk;
    shape.options.max_step_tokens = 96;
    const Totals totals = RunRandom(shape, 2, 60);
    if (chunk == 16) {
      EXPECT_GT(totals.counters.split_prefills, 20u);
    }
  }
}

TEST(SchedulerLawTest, PrefixCacheOnAndOffGiveTheSameTokens) {
  for (bool on : {true, false}) {
    Shape shape;
    shape.options.prefix_cache = on;
    const Totals totals = RunRandom(shape, 3, 100);
    EXPECT_EQ(totals.counters.prefix_hit_tokens > 0, on);
  }
}

TEST(SchedulerLawTest, PreemptedSequencesGetTheTokensOfUndisturbedOnes) {
  uint64_t preemptions = 0;
  for (int blocks : {13, 16, 24}) {
    Shape shape;
    shape.num_blocks = blocks;
    shape.options.prefill_chunk = 32;
    preemptions += RunRandom(shape, 4, 300).counters.preemptions;
  }
  EXPECT_GT(preemptions, 50u);
}

TEST(SchedulerLawTest, PlansInFlightChangeNoToken) {
  for (int plans = 1; plans <= 4; ++plans) {
    Shape shape;
    shape.num_stages = plans;
    shape.options.prefill_chunk = 16;
    const Totals totals = RunRandom(shape, 5, 100);
    EXPECT_EQ(totals.max_plans, plans);
  }
}

TEST(SchedulerLawTest, PlansThatGoAheadChangeNoToken) {
  for (int stages = 1; stages <= 4; ++stages) {
    for (int blocks : {13, 24, 400}) {
      Shape shape;
      shape.num_blocks = blocks;
      shape.num_stages = stages;
      shape.options.prefill_chunk = 16;
      shape.options.min_decode_batch = stages % 2 == 0 ? 1 : 4;
      shape.options.ahead_within = kAlwaysAhead;
      const Totals totals = RunRandom(shape, 8, 100);
      ASSERT_FALSE(HasFailure()) << stages << " stages, " << blocks;
      EXPECT_GT(totals.ahead, 200);
      if (blocks == 13) {
        EXPECT_GT(totals.counters.preemptions, 5u);
      } else if (blocks == 400) {
        EXPECT_EQ(totals.max_plans, stages + 1);
      }
    }
  }
}

TEST(SchedulerLawTest, EveryKvGroupReadsItsOwnHistory) {
  Shape shape;
  shape.windows = {0, 0, 0};
  shape.num_blocks = 40;
  shape.num_stages = 2;
  RunRandom(shape, 6, 100);
}

TEST(SchedulerLawTest, WindowedGroupsReadTheirWindowWhateverIsGivenBack) {
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  for (const int32_t window : {1, 5, 16, 33, 100}) {
    for (const int stages : {1, 3}) {
      Shape shape;
      shape.windows = {0, window};
      shape.step_tokens = 24;
      shape.num_blocks = stages == 1 ? 15 : 18;
      shape.num_stages = stages;
      shape.options.prefill_chunk = 20;
      const Totals totals =
          RunRandom(shape, static_cast<uint32_t>(300 + window), 200);
      ASSERT_FALSE(HasFailure()) << "window " << window;
      preemptions += totals.counters.preemptions;
      hits += totals.counters.prefix_hit_tokens;
    }
  }
  EXPECT_GT(preemptions, 50u);
  EXPECT_GT(hits, 1000u);
}

TEST(SchedulerLawTest, ARebuiltPipelineGoesOnWithTheSameTokens) {
  Shape shape;
  shape.num_stages = 2;
  shape.num_blocks = 40;
  for (const std::vector<int32_t>& windows :
       {std::vector<int32_t>{0}, std::vector<int32_t>{0, 24}}) {
    shape.windows = windows;
    const Totals totals = RunRandom(shape, 7, 200, /*rebuilds=*/true);
    EXPECT_GT(totals.epochs, 3u);
    EXPECT_EQ(totals.counters.recoveries, totals.epochs - 1);
    EXPECT_GT(totals.counters.replayed_tokens, 100u);
  }
}

// Constraints that are late, complete, fail and force tokens, in one step or
// one by one, beside requests without; with windows, plans ahead, preemption,
// drafts for the others, and rebuilt pipelines.
TEST(SchedulerLawTest, ConstraintsHoldWhateverElseRuns) {
  uint64_t preemptions = 0;
  for (const bool takes_forced : {true, false}) {
    for (const int stages : {1, 3}) {
      for (const int blocks : {16, 400}) {
        Shape shape;
        shape.constrained = true;
        shape.takes_forced = takes_forced;
        shape.num_stages = stages;
        shape.num_blocks = blocks;
        shape.options.prefill_chunk = 32;
        if (stages == 1) shape.options.ahead_within = kAlwaysAhead;
        if (stages == 3) shape.windows = {0, 24};
        const Totals totals = RunRandom(shape, 11, 200, stages == 3);
        ASSERT_FALSE(HasFailure())
            << takes_forced << ", " << stages << " stages, " << blocks;
        preemptions += totals.counters.preemptions;
        EXPECT_GT(totals.counters.finished_stop, 20u);
      }
    }
  }
  EXPECT_GT(preemptions, 30u);
}

// Guesses `right` of 4 tokens right, whatever follows.
DraftProposer Oracle(int right) {
  return [right](std::span<const TokenId> tokens,
                 const SamplingParams& sampling, int32_t limit) {
    std::vector<TokenId> history(tokens.begin(), tokens.end());
    std::vector<TokenId> drafts;
    while (static_cast<int32_t>(drafts.size()) < limit) {
      const TokenId token = NextToken(history, sampling, kVocab);
      history.push_back(token);
      const bool is_right = static_cast<int>(history.size() % 4) < right;
      drafts.push_back(is_right ? token : (token + 1) % kVocab);
    }
    return drafts;
  };
}

TEST(SchedulerLawTest, RightAndWrongDraftsChangeNoToken) {
  uint64_t preemptions = 0;
  for (const int right : {0, 2, 4}) {
    for (const int stages : {1, 3}) {
      Shape shape;
      shape.options.propose_drafts = Oracle(right);
      shape.num_stages = stages;
      shape.num_blocks = stages == 1 ? 400 : 16;
      const Totals totals = RunRandom(shape, 8, 200, /*rebuilds=*/stages == 3);
      ASSERT_FALSE(HasFailure()) << right << " of 4 are right";
      preemptions += totals.counters.preemptions;
    }
  }
  EXPECT_GT(preemptions, 50u);
}

TEST(SchedulerLawTest, DraftsBehindAWindowChangeNoToken) {
  uint64_t preemptions = 0;
  for (const int32_t window : {1, 16, 33}) {
    for (const int right : {0, 3, 4}) {
      Shape shape;
      shape.options.propose_drafts = Oracle(right);
      shape.windows = {0, window};
      shape.step_tokens = 24;
      shape.num_blocks = 18;
      shape.num_stages = 2;
      const Totals totals =
          RunRandom(shape, static_cast<uint32_t>(400 + window), 100);
      ASSERT_FALSE(HasFailure()) << "window " << window << ", " << right;
      preemptions += totals.counters.preemptions;
    }
  }
  EXPECT_GT(preemptions, 50u);
}

// Each step gives as many tokens as its drafts are right, and one more; the
// last plan tells of the end.
TEST(SchedulerLawTest, RightDraftsSaveSteps) {
  const GenerateRequest request = TestRequest(20, 171);
  for (const auto& [right, steps] : {std::pair{4, 12}, std::pair{0, 172}}) {
    EngineOptions options;
    options.propose_drafts = Oracle(right);
    SchedulerHarness harness(options, TestLimits(100));
    const SequenceId id = harness.Add(request);
    harness.RunToEnd();
    EXPECT_EQ(harness.outcome(id).result(), Undisturbed(request, kVocab));
    EXPECT_EQ(harness.counters().steps, static_cast<uint64_t>(steps));
  }
}

// With wrong drafts each plan has the tokens that it has without drafts, for
// they get what decodes and prompts leave, and every decode its part of that.
TEST(SchedulerLawTest, DraftsTakeNoRowFromDecodesOrPrompts) {
  PlanLimits limits = TestLimits(400);
  limits.max_step_tokens = 20;
  EngineOptions with_drafts;
  with_drafts.propose_drafts = Oracle(0);
  SchedulerHarness drafted(with_drafts, limits), plain(EngineOptions(), limits);
  const TimePoint now = Clock::now();
  int64_t drafts = 0;
  for (int step = 0; step < 60; ++step) {
    for (SchedulerHarness* harness : {&drafted, &plain}) {
      harness->set_now(now + std::chrono::milliseconds(step));
      if (step < 3) harness->Add(TestRequest(4, 40, uint64_t(step) + 1));
      if (step == 20) harness->Add(TestRequest(90, 8, 9));
    }
    std::optional<StepPlan> plan = drafted.Plan();
    const std::optional<StepPlan> expected = plain.Plan();
    ASSERT_EQ(plan.has_value(), expected.has_value()) << "step " << step;
    if (!plan) break;
    EXPECT_LE(plan->num_tokens(), limits.max_step_tokens);
    ASSERT_EQ(plan->chunks.size(), expected->chunks.size()) << *plan;
    int32_t least = kMaxDraftTokens, most = 0;
    for (size_t i = 0; i < plan->chunks.size(); ++i) {
      Chunk& chunk = plan->chunks[i];
      least = std::min(least, chunk.num_draft_tokens);
      most = std::max(most, chunk.num_draft_tokens);
      drafts += chunk.num_draft_tokens;
      chunk.tokens.resize(chunk.tokens.size() -
                          static_cast<size_t>(chunk.num_draft_tokens));
      EXPECT_EQ(chunk.sequence, expected->chunks[i].sequence);
      EXPECT_EQ(chunk.start, expected->chunks[i].start);
      EXPECT_EQ(chunk.tokens, expected->chunks[i].tokens) << *plan;
    }
    if (step == 10) {
      EXPECT_EQ(plan->chunks.size(), 3u);
      EXPECT_EQ(std::pair(least, most), std::pair(5, 6));
    }
    ASSERT_TRUE(drafted.Commit());
    ASSERT_TRUE(plain.Commit());
  }
  EXPECT_GT(drafts, 300);
}

// A result that goes on behind a wrong draft is the pipeline's mistake.
TEST(SchedulerLawTest, WhatFollowsAWrongDraftIsRefused) {
  for (const bool too_many : {false, true}) {
    EngineOptions options;
    options.propose_drafts = Oracle(0);
    SchedulerHarness harness(options, TestLimits(100));
    const SequenceId id = harness.Add(TestRequest(20, 30));
    ASSERT_TRUE(harness.Plan());
    ASSERT_TRUE(harness.Commit());
    const auto plan = harness.Plan();
    ASSERT_TRUE(plan.has_value());
    ASSERT_EQ(plan->chunks[0].num_draft_tokens, kMaxDraftTokens);
    auto& sampled = harness.NextResult().sequences[0].sampled;
    const size_t more = too_many ? kMaxDraftTokens + 1 : 1;
    sampled.insert(sampled.end(), more, sampled[0]);
    ASSERT_TRUE(harness.Commit());
    const Outcome& outcome = harness.outcome(id);
    ASSERT_EQ(outcome.ends.size(), 1u);
    EXPECT_EQ(outcome.ends[0].status.code(), StatusCode::kInternal);
    EXPECT_EQ(outcome.tokens.size(), 1u);
    EXPECT_EQ(harness.counters().refused_results, 1u);
  }
}

TEST(SchedulerLawTest, AnyMixOfAllOfItGivesTheSameTokens) {
  Totals sum;
  for (uint32_t seed = 100; seed < 160; ++seed) {
    std::mt19937 random(seed);
    const auto one_of = [&](std::initializer_list<int> values) {
      return values.begin()[random() % values.size()];
    };
    Shape shape;
    shape.num_blocks = one_of({13, 14, 20, 40, 400});
    const std::vector<int32_t> groups[] = {{0}, {0, 0}, {0, 20}, {0, 7, 64}};
    shape.windows = groups[one_of({0, 0, 1, 2, 3})];
    if (shape.windows.size() > 1) {
      shape.num_blocks += 2;
      shape.step_tokens = one_of({16, 64});
    }
    shape.num_stages = one_of({1, 2, 3, 4});
    shape.options.prefill_chunk = one_of({0, 7, 16, 64});
    shape.options.max_step_tokens = one_of({8, 48, 512});
    shape.options.max_running = one_of({1, 3, 64});
    shape.options.max_running_per_client = one_of({0, 0, 1, 2});
    shape.options.place_turn = std::chrono::milliseconds(one_of({0, 1, 500}));
    shape.options.prefix_cache = one_of({0, 1, 1}) == 1;
    shape.options.min_decode_batch = one_of({1, 2, 4});
    if (seed % 3 == 0) shape.options.propose_drafts = Oracle(one_of({1, 3, 4}));
    if (seed % 3 == 1) shape.options.ahead_within = kAlwaysAhead;
    const Totals totals =
        RunRandom(shape, seed, 60, /*rebuilds=*/seed % 4 == 0);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    sum.counters.preemptions += totals.counters.preemptions;
    sum.counters.yields += totals.counters.yields;
    sum.counters.steps += totals.counters.steps;
    sum.ahead += totals.ahead;
    sum.counters.split_prefills += totals.counters.split_prefills;
    sum.counters.prefix_hit_tokens += totals.counters.prefix_hit_tokens;
  }
  EXPECT_GT(sum.counters.steps, 10000u);
  EXPECT_GT(sum.ahead, 1000);
  EXPECT_GT(sum.counters.preemptions, 100u);
  EXPECT_GT(sum.counters.yields, 100u);
  EXPECT_GT(sum.counters.split_prefills, 100u);
  EXPECT_GT(sum.counters.prefix_hit_tokens, 1000u);
}

}  // namespace
}  // namespace sluice
