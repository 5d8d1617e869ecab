#ifndef SLUICE_TESTS_ENGINE_SCHEDULER_HARNESS_H_
#define SLUICE_TESTS_ENGINE_SCHEDULER_HARNESS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/engine/engine_options.h"
#include "common/engine/scheduler.h"
#include "tests/engine/fake_constraint.h"
#include "tests/engine/fake_pipeline.h"
#include "tests/engine/random_shape.h"

namespace sluice {

// All that a sequence's sink would have seen.
struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<TokenResult> prompt;
  std::vector<float> logits;
  std::vector<FinalEvent> ends;          // exactly one, in the end
  int waits = 0;                         // for parts of the pipeline
  std::optional<int32_t> cached_tokens;  // as the tokens' events told
  Expected result() const { return {tokens, ends.at(0).reason}; }
};

// A scheduler on a fake pipeline whose results come back when told to. A stage
// does its part of a plan at the latest when the result is committed. After
// every move the scheduler's integrity is asserted.
class SchedulerHarness {
 public:
  SchedulerHarness(const EngineOptions& options, const PlanLimits& limits,
                   int num_stages = 1, bool logs = false)
      : limits_(limits), scheduler_(options, &counters_, [this](SequenceId id) {
          notices_.push_back(id);
        }) {
    Attach(Epoch(1), num_stages, logs);
  }

  // All stages are new. `logs`: whether they have logs of what they hand on.
  // `claims`: with other limits they say all the same that none lost anything.
  void Attach(Epoch epoch, int num_stages, bool logs = false,
              bool claims = false) {
    const bool differs = stages_ != nullptr && limits_ != stages_->limits();
    stages_ = std::make_shared<FakeStages>(num_stages, limits_, logs);
    Begin(epoch, claims && differs ? LostStages(std::vector<int32_t>())
                                   : std::nullopt);
  }
  // The stages are those of the last pipeline, but for the `lost` ones, in
  // whose places others are.
  void AttachAgain(Epoch epoch, const std::vector<int32_t>& lost) {
    AttachAgain(epoch, lost, cut());
  }
  // The layers are cut at `first_layers`, and the `lost` stages are others,
  // too.
  void AttachAgain(Epoch epoch, std::vector<int32_t> lost,
                   const std::vector<int32_t>& first_layers) {
    for (const int32_t index : stages_->Recut(first_layers)) {
      if (std::ranges::count(lost, index) == 0) lost.push_back(index);
    }
    for (const int32_t index : lost) {
      stages_->Replace(static_cast<size_t>(index));
    }
    Begin(epoch, stages_->ReplayAt(lost));
  }

  // After SuspendByPlan: the layers are cut at `first_layers`, and stages copy
  // what they lack from those that had it, but for the `failed` ones, whose
  // copies break.
  void AttachMoved(Epoch epoch, const std::vector<int32_t>& failed,
                   const std::vector<int32_t>& first_layers) {
    std::vector<int32_t> lost;
    for (const int32_t index : stages_->Recut(first_layers, /*copies=*/true)) {
      if (std::ranges::count(failed, index) == 0) continue;
      stages_->Replace(static_cast<size_t>(index));
      lost.push_back(index);
    }
    Begin(epoch, stages_->ReplayAt(lost));
  }

  // The pipeline dies, with the results that are out. Each stage has done some
  // of the plans in flight by then; `pick` returns a number below its argument.
  void Suspend(const std::function<size_t(size_t)>& pick = [](size_t) {
    return 0;
  }) {
    std::ranges::move(results_, std::back_inserter(late_));
    results_.clear();
    const Status broken = stages_->Break(pick);
    EXPECT_TRUE(broken.ok()) << broken;
    Take(scheduler_.Suspend(Unavailable("stage 1 is gone")));
  }
  // The same, by choice.
  void SuspendByPlan(const std::function<size_t(size_t)>& pick = [](size_t) {
    return 0;
  }) {
    results_.clear();
    const Status broken = stages_->Break(pick);
    EXPECT_TRUE(broken.ok()) << broken;
    Take(scheduler_.Suspend(Unavailable("a stage joins"), /*is_planned=*/true));
  }

  SequenceId Add(GenerateRequest request) {
    EXPECT_TRUE(CheckRequest(request, limits_).ok());
    const SequenceId id(++last_id_);
    outcomes_[id];
    requests_[id] = request;
    scheduler_.Add(id, std::move(request), nullptr);
    Check();
    return id;
  }

  void End(SequenceId id, FinishReason reason) {
    Take(scheduler_.End(id, reason, OkStatus()));
  }

  // Hands the next plan to the pipeline; nothing if there is none.
  std::optional<StepPlan> Plan() {
    TakeNotices();
    std::optional<StepPlan> plan = scheduler_.Plan(now_);
    Check();
    if (!plan) return plan;
    StatusOr<StepResult> result = pipeline_->Run(*plan);
    EXPECT_TRUE(result.ok()) << result.status() << " in " << *plan;
    if (!result.ok()) return std::nullopt;
    results_.push_back(*std::move(result));
    return plan;
  }

  // Probes the quiet pipeline so much later; the plan is done at once.
  StepPlan Probe(Duration later) {
    StepPlan plan = scheduler_.Probe(now_ += later);
    StatusOr<StepResult> result = pipeline_->Run(plan);
    EXPECT_TRUE(result.ok()) << result.status() << " in " << plan;
    if (result.ok()) results_.push_back(*std::move(result));
    EXPECT_TRUE(Commit());
    return plan;
  }

  // The next pipelines have so many blocks.
  void Resize(int32_t num_blocks) {
    limits_.num_blocks = num_blocks;
    limits_.max_context =
        static_cast<int32_t>(std::min<int64_t>(1024, MaxPositions(limits_)));
  }

  // Commits the oldest result of a lost pipeline, if there is one: it counts
  // for nothing.
  void CommitLate() {
    if (late_.empty()) return;
    const uint64_t stale = counters_.stale_results;
    const auto events = scheduler_.Commit(std::move(late_.front()), now_);
    late_.pop_front();
    ASSERT_TRUE(events.ok()) << events.status();
    EXPECT_TRUE(events->empty());
    EXPECT_EQ(counters_.stale_results, stale + 1);
    Check();
  }

  // Commits the next result but one, or the oldest one twice. It is refused,
  // and the pipeline is given up.
  void CommitSwapped() {
    if (results_.size() < 2) return;
    ExpectRefused(std::move(results_[1]));
  }
  void CommitTwice() {
    const StepResult again = results_.front();
    Commit();
    ExpectRefused(again);
  }

  // The oldest result that is out, changed before it is committed.
  StepResult& NextResult() { return results_.front(); }
  // The sequences of its plan.
  std::vector<SequenceId> Carried() {
    return stages_->Carried(NextResult().step_id);
  }
  // Its part of sequence `id` fails with `why`, and leaves nothing of meaning.
  void FailNext(SequenceId id, const Status& why) {
    std::vector<SequenceResult>& parts = NextResult().sequences;
    std::erase_if(parts, [id](const SequenceResult& part) {
      return part.sequence == id;
    });
    parts.emplace_back().sequence = id;
    parts.back().status = why;
    stages_->Spoil(NextResult().step_id, id);
  }

  // Commits the oldest result; false if none is out.
  bool Commit() {
    if (results_.empty()) return false;
    StepResult result = std::move(results_.front());
    results_.pop_front();
    const Status done = stages_->Finish(result.step_id);
    EXPECT_TRUE(done.ok()) << done;
    StatusOr<SequenceEvents> events =
        scheduler_.Commit(std::move(result), now_);
    EXPECT_TRUE(events.ok()) << events.status();
    if (events.ok()) Take(*std::move(events));
    return true;
  }

  // Plans as much as may be in flight, commits one, until nothing is in flight.
  void RunUntilNothingIsPlanned() {
    do {
      while (Plan()) {
      }
    } while (Commit());
  }

  // Plans as much as may be in flight, commits one, until all is quiet and no
  // step of a constraint is held.
  void RunToEnd() {
    for (;;) {
      while (Plan()) {
      }
      if ((!Commit() && !held_->Release()) || ::testing::Test::HasFailure()) {
        break;
      }
    }
    EXPECT_EQ(num_live(), 0u);
    ExpectNothingHeld();
  }

  void ExpectNothingHeld() {
    const EngineStats now = stats();
    EXPECT_EQ(now.blocks_used, 0);
    EXPECT_EQ(now.running, 0);
    EXPECT_EQ(now.waiting, 0);
    EXPECT_EQ(pipeline_->num_sequences(), 0u);
    for (const auto& [id, outcome] : outcomes_) {
      EXPECT_EQ(outcome.ends.size(), 1u) << "sequence " << id;
    }
  }

  void Take(SequenceEvents events) {
    for (SequenceEvent& event : events) {
      Outcome& outcome = outcomes_.at(event.sequence);
      EXPECT_TRUE(outcome.ends.empty()) << "an event after the end";
      if (auto* end = std::get_if<FinalEvent>(&event.what)) {
        const auto told =
            outcome.cached_tokens.value_or(end->stats.cached_tokens);
        EXPECT_EQ(told, end->stats.cached_tokens);
        outcome.ends.push_back(*end);
        continue;
      }
      if (std::holds_alternative<SuspendEvent>(event.what)) {
        ++outcome.waits;
        continue;
      }
      TokenEvent& tokens = std::get<TokenEvent>(event.what);
      outcome.cached_tokens = tokens.cached_tokens;
      EXPECT_TRUE(outcome.cached_tokens.has_value());
      for (TokenResult& token : tokens.prompt) {
        EXPECT_TRUE(outcome.tokens.empty()) << "prompt after tokens";
        outcome.prompt.push_back(std::move(token));
      }
      for (const TokenResult& token : tokens.tokens) {
        outcome.tokens.push_back(token.token);
      }
      const size_t row = static_cast<size_t>(limits_.vocab_size);
      if (!tokens.logits.empty()) {
        const GenerateRequest& asked = requests_.at(event.sequence);
        const bool is_last = asked.sampling.hidden == HiddenWanted::kLast;
        EXPECT_EQ(static_cast<size_t>(tokens.logits_position) * row,
                  is_last ? (asked.prompt_tokens.size() - 1) * row
                          : outcome.logits.size());
      }
      outcome.logits.insert(outcome.logits.end(), tokens.logits.begin(),
                            tokens.logits.end());
    }
    Check();
  }

  void Check() {
    const Status status = scheduler_.CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status;
  }

  // Hands the notices of constraints to the scheduler.
  void TakeNotices() {
    while (!notices_.empty()) {
      const SequenceId id = notices_.front();
      notices_.pop_front();
      Take(scheduler_.OnConstraintReady(id, now_));
    }
  }
  const std::shared_ptr<HeldSteps>& held_steps() const { return held_; }

  Scheduler& scheduler() { return scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  size_t num_live() const { return scheduler_.state().sequences.all().size(); }
  size_t num_running() const {
    return scheduler_.state().sequences.running().size();
  }
  size_t num_waiting() const {
    return scheduler_.state().sequences.num_waiting();
  }
  const EngineCounters& counters() const { return counters_; }
  QueueState queue() const {
    EngineStats now;
    return scheduler_.FillStats(now);
  }
  EngineStats stats() const {
    EngineStats now;
    scheduler_.FillStats(now);
    return now;
  }
  const PlanLimits& limits() const { return limits_; }
  const Outcome& outcome(SequenceId id) const { return outcomes_.at(id); }
  const std::map<SequenceId, Outcome>& outcomes() const { return outcomes_; }
  const GenerateRequest& request(SequenceId id) const {
    return requests_.at(id);
  }
  size_t results_out() const { return results_.size(); }
  int64_t tokens_computed() const { return pipeline_->tokens_computed(); }
  int64_t tokens_replayed() const { return pipeline_->tokens_replayed(); }
  int num_stages() const { return stages_->count(); }
  int32_t num_layers() const { return stages_->num_layers(); }
  // The first layers of the stages.
  std::vector<int32_t> cut() const { return stages_->first_layers(); }
  int64_t chunks_ahead() const { return pipeline_->chunks_ahead(); }
  void set_now(TimePoint now) { now_ = now; }

 private:
  void Begin(Epoch epoch, const LostStages& lost) {
    pipeline_ =
        std::make_unique<FakePipeline>(epoch, limits_, stages_, /*lags=*/true);
    results_.clear();
    Take(scheduler_.Attach(epoch, limits_, stages_->count(), lost));
  }

  void ExpectRefused(StepResult result) {
    EXPECT_EQ(scheduler_.Commit(std::move(result), now_).status().code(),
              StatusCode::kInternal);
    Suspend();
  }

  PlanLimits limits_;
  EngineCounters counters_;
  std::deque<SequenceId> notices_;
  const std::shared_ptr<HeldSteps> held_ = std::make_shared<HeldSteps>();
  Scheduler scheduler_;
  std::shared_ptr<FakeStages> stages_;
  std::unique_ptr<FakePipeline> pipeline_;
  std::deque<StepResult> results_;
  std::deque<StepResult> late_;  // of lost pipelines
  std::map<SequenceId, Outcome> outcomes_;
  std::map<SequenceId, GenerateRequest> requests_;
  uint64_t last_id_ = 0;
  TimePoint now_ = Clock::now();
};

// A prompt of `length` tokens, of `seed` alone.
inline GenerateRequest TestRequest(int length, int max_tokens,
                                   uint64_t seed = 1) {
  GenerateRequest request;
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  for (int i = 0; i < length; ++i) {
    request.prompt_tokens.push_back(
        static_cast<TokenId>((seed * 7 + static_cast<uint64_t>(i * i)) % 50));
  }
  return request;
}

}  // namespace sluice

#endif  // SLUICE_TESTS_ENGINE_SCHEDULER_HARNESS_H_
