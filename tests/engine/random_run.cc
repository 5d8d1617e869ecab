#include "tests/engine/random_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "tests/engine/fake_constraint.h"
#include "tests/engine/fake_pipeline.h"
#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

// Far more than a run of a few hundred requests needs.
constexpr int64_t kMaxMoves = 300000;

std::shared_ptr<TokenConstraint> RandomConstraint(
    std::mt19937& random, const Shape& shape,
    const std::shared_ptr<HeldSteps>& held) {
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<uint32_t>(n));
  };
  FakeGrammar grammar;
  grammar.seed = random();
  grammar.vocab_size = kRunVocab;
  grammar.forced_runs = pick(6);
  if (pick(2) == 0) grammar.complete_at = pick(60);
  if (pick(10) == 0) grammar.fails_at = pick(60);
  grammar.takes_forced = shape.takes_forced;
  return std::make_shared<FakeConstraint>(grammar,
                                          pick(3) == 0 ? nullptr : held);
}

// Whether no pipeline could go on with the sequence.
bool EndedByFault(const Outcome& outcome) {
  const std::string why = Message(outcome.ends.at(0).status);
  return why == "injected" || why == "no host" ||
         why.starts_with("replayed too often") ||
         why.starts_with("the rebuilt pipeline is too small");
}

void ExpectAsAlone(const SchedulerHarness& harness, SequenceId id) {
  const Outcome& outcome = harness.outcome(id);
  ASSERT_EQ(outcome.ends.size(), 1u);
  const GenerateRequest& request = harness.request(id);
  const Expected alone = Undisturbed(request, kRunVocab);
  const FinishReason reason = outcome.ends[0].reason;
  if (reason == FinishReason::kCancelled || EndedByFault(outcome)) {
    ASSERT_LE(outcome.tokens.size(), alone.tokens.size());
    EXPECT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(),
                           alone.tokens.begin()));
    return;
  }
  EXPECT_EQ(outcome.tokens, alone.tokens);
  EXPECT_EQ(reason, alone.reason);
  const bool by_constraint = request.constraint != nullptr &&
                             reason != FinishReason::kLength &&
                             !outcome.ends[0].stop_token;
  // A constraint without a token ends the sequence at once, whether its prompt
  // was computed or not.
  if (by_constraint && outcome.tokens.empty()) return;
  if (request.sampling.prompt_logprobs >= 0) {
    ASSERT_EQ(outcome.prompt.size(), request.prompt_tokens.size() - 1);
    for (size_t i = 0; i < outcome.prompt.size(); ++i) {
      EXPECT_EQ(outcome.prompt[i].token, request.prompt_tokens[i + 1]);
    }
  }
  if (request.sampling.hidden != HiddenWanted::kNone) {
    const bool all = request.sampling.hidden == HiddenWanted::kAll;
    EXPECT_EQ(outcome.logits.size(),
              (all ? request.prompt_tokens.size() : 1) * kRunVocab);
  }
  if (request.sampling.return_logits) {
    // Rows of all positions but the last token's, which is never computed.
    size_t rows = request.prompt_tokens.size() + outcome.tokens.size();
    if (by_constraint ||
        (reason == FinishReason::kLength && request.max_tokens > 0)) {
      --rows;
    }
    EXPECT_EQ(outcome.logits.size(), rows * kRunVocab);
  }
}

// One random run; see RunRandom.
class RandomRun {
 public:
  RandomRun(const Shape& shape, uint32_t seed, const Faults& rates)
      : shape_(shape),
        rates_(rates),
        random_(seed),
        harness_(shape.options, LimitsOf(shape), shape.num_stages, shape.logs),
        max_positions_(std::min(200, harness_.limits().max_context)) {}

  Totals Run(int num_requests) {
    while (added_ < num_requests || harness_.num_live() > 0) {
      if (++totals_.moves > kMaxMoves) {
        ADD_FAILURE() << harness_.num_live() << " sequences have no end";
        return totals_;
      }
      if (added_ < num_requests && Pick(3) == 0) Arrive();
      // Not in the end, where each must come to its own.
      if (Pick(50) == 0 && added_ > 0 && added_ < num_requests) Cancel();
      if (Pick(3) == 0) harness_.held_steps()->Release();
      GoWrong();
      // Steps take anything from nothing to seconds, so that plans are of all
      // sizes.
      now_ +=
          std::chrono::microseconds(Pick(40) == 0 ? Pick(2000000) : Pick(900));
      harness_.set_now(now_);
      if (Pick(2) == 0) {
        harness_.Plan();
      } else {
        harness_.Commit();
      }
      if (::testing::Test::HasFailure()) return totals_;
    }
    if (!harness_.scheduler().attached()) Attach();
    harness_.RunToEnd();
    for (const auto& [id, outcome] : harness_.outcomes()) {
      ExpectAsAlone(harness_, id);
      if (::testing::Test::HasFailure()) break;
      totals_.ended_by_faults += EndedByFault(outcome) ? 1 : 0;
    }
    totals_.num_sequences = harness_.outcomes().size();
    totals_.counters = harness_.counters();
    totals_.max_plans = harness_.stats().max_plans_in_flight_seen;
    totals_.ahead = harness_.chunks_ahead();
    return std::move(totals_);
  }

 private:
  int Pick(int n) {
    return static_cast<int>(random_() % static_cast<uint32_t>(n));
  }
  bool Happens(int rate, int& count) {
    if (rate == 0 || Pick(1000) >= rate) return false;
    ++count;
    return true;
  }

  void Arrive() {
    GenerateRequest request = RandomRequest(random_, max_positions_);
    const bool constrained = shape_.constrained && Pick(2) == 0;
    request.num_choices = Pick(4) == 0 ? 2 + Pick(3) : 1;
    request.request_id = std::to_string(added_);
    for (int i = 0; i < request.num_choices; ++i) {
      if (constrained) {
        request.constraint =
            RandomConstraint(random_, shape_, harness_.held_steps());
      }
      request.sampling.choice = static_cast<uint32_t>(i);
      request.sampling.seed += static_cast<uint64_t>(i);
      if (!CheckRequest(request, harness_.limits()).ok()) return;
      const SequenceId id = harness_.Add(request);
      ++added_;
      if (Pick(20) == 0) harness_.End(id, FinishReason::kCancelled);
    }
  }

  void Cancel() {
    harness_.End(SequenceId(1 + static_cast<uint64_t>(Pick(added_))),
                 FinishReason::kCancelled);
  }

  void GoWrong() {
    Faults& count = totals_.faults;
    if (!harness_.scheduler().attached()) {
      if (Pick(20) == 0) Attach();
    } else if (Happens(rates_.losses, count.losses)) {
      Suspend();
    } else if (Happens(rates_.drains, count.drains)) {
      harness_.scheduler().HoldStarts();
      is_leaving_ = true;
    } else if (is_leaving_ && Pick(20) == 0) {
      Suspend();
    } else if (harness_.results_out() > 0) {
      SpoilResult();
    }
    if (Happens(rates_.late_results, count.late_results)) {
      harness_.CommitLate();
    }
    if (Happens(rates_.jumps, count.jumps)) {
      now_ += std::chrono::milliseconds(Pick(60000));
    }
  }

  // The oldest result fails one of its sequences, or is not to be believed.
  void SpoilResult() {
    Faults& count = totals_.faults;
    StepResult& next = harness_.NextResult();
    if (Happens(rates_.contradictions, count.contradictions)) {
      Pick(2) == 0 ? harness_.CommitSwapped() : harness_.CommitTwice();
      return;
    }
    if (rates_.survivals > 0) return FailAny();
    if (next.sequences.empty()) return;
    const auto which = static_cast<size_t>(Pick(int(next.sequences.size())));
    if (Pick(300) == 0) next.sequences[which].status = Internal("injected");
    if (Happens(rates_.no_host, count.no_host)) {
      harness_.FailNext(next.sequences[which].sequence, Unavailable("no host"));
    }
  }

  // Any part of the oldest plan fails, be it a replay.
  void FailAny() {
    const std::vector<SequenceId> carried = harness_.Carried();
    if (carried.empty()) return;
    const SequenceId id =
        carried[static_cast<size_t>(Pick(static_cast<int>(carried.size())))];
    if (Pick(300) == 0) {
      harness_.FailNext(id, Internal("injected"));
    } else if (Happens(rates_.no_host, totals_.faults.no_host)) {
      harness_.FailNext(id, Unavailable("no host"));
    }
  }

  // The stages have done any part of the plans in flight.
  void Suspend() {
    if (rates_.survivals == 0) return harness_.Suspend();
    const auto pick = [this](size_t n) {
      return static_cast<size_t>(Pick(static_cast<int>(n)));
    };
    is_planned_ = Happens(rates_.moves, totals_.faults.moves);
    is_planned_ ? harness_.SuspendByPlan(pick) : harness_.Suspend(pick);
  }

  // Any copy may fail.
  void AttachMoved() {
    const std::vector<int32_t> cut = RandomCut();
    std::vector<int32_t> failed;
    for (int32_t i = 0; i < static_cast<int32_t>(cut.size()); ++i) {
      if (Pick(4) == 0) failed.push_back(i);
    }
    harness_.AttachMoved(Epoch(++totals_.epochs), failed, cut);
  }

  void Attach() {
    is_leaving_ = false;
    if (std::exchange(is_planned_, false)) return AttachMoved();
    if (Happens(rates_.survivals, totals_.faults.survivals)) {
      const std::vector<int32_t> cut =
          Happens(rates_.recuts, totals_.faults.recuts) ? RandomCut()
                                                        : harness_.cut();
      std::vector<int32_t> lost;
      for (int32_t i = 0; i < static_cast<int32_t>(cut.size()); ++i) {
        if (Pick(3) == 0) lost.push_back(i);
      }
      return harness_.AttachAgain(Epoch(++totals_.epochs), lost, cut);
    }
    int stages = shape_.num_stages;
    if (rates_.resizes > 0 && Pick(1000) < rates_.resizes) {
      ++totals_.faults.resizes;
      stages = 1 + Pick(4);
      harness_.Resize(shape_.num_blocks / 2 + Pick(shape_.num_blocks));
    }
    harness_.Attach(Epoch(++totals_.epochs), stages, shape_.logs,
                    /*claims=*/rates_.survivals > 0);
  }

  // Over any number of stages.
  std::vector<int32_t> RandomCut() {
    std::vector<int32_t> cut = {0};
    for (int32_t i = 1; i < harness_.num_layers(); ++i) {
      if (Pick(2) == 0) cut.push_back(i);
    }
    return cut;
  }

  const Shape& shape_;
  const Faults rates_;
  std::mt19937 random_;
  SchedulerHarness harness_;
  const int max_positions_;
  int added_ = 0;
  bool is_leaving_ = false;
  bool is_planned_ = false;  // the latest loss
  TimePoint now_ = Clock::now();
  Totals totals_;
};

}  // namespace

Totals RunRandom(const Shape& shape, uint32_t seed, int num_requests,
                 const Faults& faults) {
  return RandomRun(shape, seed, faults).Run(num_requests);
}

}  // namespace sluice
