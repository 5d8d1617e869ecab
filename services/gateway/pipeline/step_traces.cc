#include "services/gateway/pipeline/step_traces.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Whether every span that a stage sent runs forwards, and in the order in
// which a stage works.
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

}  // namespace

void StepTraces::Complete(std::span<const ClockEstimate> clocks,
                          int64_t received_ns, StepResult& result) {
  while (!under_way_.empty() && under_way_.front().step_id < result.step_id) {
    under_way_.pop_front();
  }
  if (!result.trace.has_value()) return;
  const std::vector<StageTrace>& stages = result.trace->stages;
  if (under_way_.empty() || under_way_.front().step_id != result.step_id ||
      stages.size() != clocks.size() ||
      !std::all_of(stages.begin(), stages.end(), IsPlausible)) {
    result.trace.reset();
    return;
  }
  StepTrace whole = std::move(under_way_.front());
  under_way_.pop_front();
  whole.stages = std::move(result.trace->stages);
  AlignStages(clocks, received_ns, whole);
  result.trace = std::move(whole);
}

}  // namespace sluice
