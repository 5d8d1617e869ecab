#include "common/pipeline/gateway/stage_clock.h"

#include <algorithm>

namespace sluice {
namespace {

// 36 years: no host's monotonic clock shows more, and differences of
// differences of such values stay within int64_t.
constexpr int64_t kMaxClock = int64_t{1} << 60;

void Move(int64_t by_ns, StageTrace& stage) {
  for (TraceSpan* span : {&stage.receive, &stage.wait, &stage.compute,
                          &stage.sample, &stage.serialise}) {
    if (!span->happened()) continue;
    span->start_ns += by_ns;
    span->stop_ns += by_ns;
  }
}

}  // namespace

void StageClock::Add(int64_t sent_ns, int64_t stage_ns, int64_t received_ns,
                     ClockHops hops) {
  if (received_ns < sent_ns) return;
  if (stage_ns <= -kMaxClock || stage_ns >= kMaxClock) return;
  trips_.push_back({sent_ns, stage_ns, received_ns, hops});
  if (trips_.size() > kWindow) trips_.pop_front();
}

ClockEstimate StageClock::At(int64_t now_ns) const {
  ClockEstimate best;
  for (const Trip& trip : trips_) {
    const int64_t rtt = trip.received_ns - trip.sent_ns;
    const int64_t age = std::max<int64_t>(0, now_ns - trip.received_ns);
    const int64_t drift = age / 1000 * kDriftPerSecond / 1000000;
    const int64_t before = rtt * trip.hops.before / trip.hops.all;
    const int64_t error = std::max(before, rtt - before) + drift;
    if (best.known && best.error_ns <= error) continue;
    best = {true, trip.stage_ns - (trip.sent_ns + before), error, rtt};
  }
  return best;
}

void AlignStages(std::span<const ClockEstimate> clocks, int64_t received_ns,
                 StepTrace& trace) {
  // No earlier than the frame before allows, first stage first.
  int64_t sent = trace.serialise.stop_ns;
  for (size_t i = 0; i < trace.stages.size(); ++i) {
    StageTrace& stage = trace.stages[i];
    if (i < clocks.size()) Move(-clocks[i].offset_ns, stage);
    Move(std::max<int64_t>(0, sent - stage.receive.start_ns), stage);
    sent = stage.serialise.stop_ns;
  }
  // No later than the frame behind allows, last stage first. Both hold in the
  // end, unless the stages' own times exceed the whole.
  int64_t arrived = received_ns;
  for (size_t i = trace.stages.size(); i-- > 0;) {
    StageTrace& stage = trace.stages[i];
    Move(std::min<int64_t>(0, arrived - stage.serialise.stop_ns), stage);
    arrived = stage.receive.start_ns;
  }
}

}  // namespace sluice
