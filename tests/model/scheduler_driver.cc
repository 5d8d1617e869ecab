#include "tests/model/scheduler_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace sluice::testing {
namespace {

// The time of a step on every machine: the scheduler decides by it.
constexpr Duration kStep = std::chrono::milliseconds(10);

// Every driver begins an epoch of its own.
Epoch NextEpoch() {
  static uint64_t epoch = 0;
  return Epoch(++epoch);
}

}  // namespace

SchedulerDriver::SchedulerDriver(Pipeline& pipeline,
                                 const EngineOptions& options, Pools pools)
    : pipeline_(pipeline), scheduler_(options, &counters_) {
  limits_ = pipeline.stage(0).info().limits;
  limits_.num_blocks = pools.blocks;
  limits_.num_state_blocks = pools.state_blocks;
  limits_.max_context = std::min<int32_t>(
      limits_.max_context, static_cast<int32_t>(MaxPositions(limits_)));
  const Epoch epoch = NextEpoch();
  pipeline_.Restart(epoch);
  scheduler_.Attach(epoch, limits_, pipeline_.num_stages());
}

void SchedulerDriver::Add(const Ask& ask) {
  GenerateRequest request;
  request.prompt_tokens = ask.prompt;
  request.sampling = ask.sampling;
  request.max_tokens = ask.max_tokens;
  ASSERT_TRUE(CheckRequest(request, limits_).ok());
  answers_.emplace_back();
  scheduler_.Add(SequenceId(answers_.size()), std::move(request), nullptr);
}

bool SchedulerDriver::Go(int steps) {
  for (; steps > 0; --steps) {
    auto plan = scheduler_.Plan(now_);
    if (!plan) return false;
    for (const Chunk& chunk : plan->chunks) drafts_ += chunk.num_draft_tokens;
    auto result = pipeline_.Run(*std::move(plan));
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return false;
    now_ += kStep;
    auto events = scheduler_.Commit(*std::move(result), now_);
    EXPECT_TRUE(events.ok()) << events.status();
    if (!events.ok()) return false;
    Take(*std::move(events));
    const Status sound = scheduler_.CheckIntegrity();
    EXPECT_TRUE(sound.ok()) << sound;
  }
  return true;
}

void SchedulerDriver::LoseLast() {
  const int32_t stages = pipeline_.num_stages();
  ASSERT_GT(stages, 1);
  ASSERT_TRUE(pipeline_.stage(0).info().replay_log);
  const int32_t first = pipeline_.stage(stages - 1).info().first_layer;
  Take(scheduler_.Suspend(Unavailable("the last stage is gone")));
  pipeline_.Lose(stages - 1);
  const Epoch epoch = NextEpoch();
  pipeline_.Restart(epoch);
  Take(scheduler_.Attach(epoch, limits_, stages,
                         LostStages(std::vector<int32_t>{first})));
}

void SchedulerDriver::Take(SequenceEvents events) {
  for (SequenceEvent& event : events) {
    Answer& answer = answers_.at(event.sequence.value() - 1);
    if (auto* tokens = std::get_if<TokenEvent>(&event.what)) {
      answer.tokens.insert(answer.tokens.end(), tokens->tokens.begin(),
                           tokens->tokens.end());
    } else if (auto* end = std::get_if<FinalEvent>(&event.what)) {
      answer.status = end->status;
    }
  }
}

}  // namespace sluice::testing
