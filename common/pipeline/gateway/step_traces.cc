#include "common/pipeline/gateway/step_traces.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Whether a stage's spans run forwards, and in the order of its work.
bool IsPlausible(const StageTrace& stage) {
  int64_t last = stage.receive.start_ns;
  for (const TraceSpan* span : {&stage.receive, &stage.wait, &stage.compute,
                                &stage.sample, &stage.serialise}) {
    if (!span->happened()) continue;
    if (span->start_ns < last || span->stop_ns < span->start_ns) return false;
    last = span->stop_ns;
  }
  return stage.receive.happened() && stage.serialise.happened();
}

int64_t OnStage(const StageTrace& stage) {
  return stage.serialise.stop_ns - stage.receive.start_ns;
}

}  // namespace

void StepTraces::Complete(std::span<const ClockEstimate> clocks,
                          int64_t received_ns, StepResult& result) {
  std::optional<StepTrace> plan = Take(result);
  if (!result.trace.has_value()) return;
  const std::vector<StageTrace>& stages = result.trace->stages;
  if (!plan.has_value() || stages.size() != clocks.size() ||
      !std::all_of(stages.begin(), stages.end(), IsPlausible)) {
    result.trace.reset();
    return;
  }
  StepTrace whole = *std::move(plan);
  whole.stages = std::move(result.trace->stages);
  Learn(whole, received_ns);
  AlignStages(Best(clocks, received_ns), received_ns, whole);
  result.trace = std::move(whole);
}

// Returns the gateway's part for `result`, and forgets those of earlier steps:
// results come in step order.
std::optional<StepTrace> StepTraces::Take(const StepResult& result) {
  if (result.epoch != epoch_) return std::nullopt;
  std::optional<StepTrace> plan;
  while (!under_way_.empty() && under_way_.front().step_id <= result.step_id) {
    if (under_way_.front().step_id == result.step_id) {
      plan = std::move(under_way_.front());
    }
    under_way_.pop_front();
  }
  return plan;
}

// Each stage's own clock gives its time exactly. Without those times, a step's
// way out and back is a round trip of hops alone.
void StepTraces::Learn(const StepTrace& trace, int64_t received_ns) {
  const size_t n = trace.stages.size();
  by_steps_.resize(n);
  int64_t before = 0;
  int64_t after = 0;
  for (const StageTrace& stage : trace.stages) after += OnStage(stage);
  for (size_t i = 0; i < n; ++i) {
    const StageTrace& stage = trace.stages[i];
    by_steps_[i].Add(trace.serialise.stop_ns + before, stage.receive.start_ns,
                     received_ns - after,
                     {static_cast<int>(i) + 1, static_cast<int>(n) + 1});
    before += OnStage(stage);
    after -= OnStage(stage);
  }
}

std::vector<ClockEstimate> StepTraces::Best(
    std::span<const ClockEstimate> by_heartbeats, int64_t now_ns) const {
  std::vector<ClockEstimate> best(by_heartbeats.begin(), by_heartbeats.end());
  for (size_t i = 0; i < best.size() && i < by_steps_.size(); ++i) {
    const ClockEstimate other = by_steps_[i].At(now_ns);
    if (!best[i].known || (other.known && other.error_ns < best[i].error_ns)) {
      best[i] = other;
    }
  }
  return best;
}

}  // namespace sluice
