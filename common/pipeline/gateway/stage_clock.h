#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CLOCK_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "common/core/step_trace.h"

namespace sluice {

// Where on a round trip of `all` hops the other process reads its clock.
struct ClockHops {
  int before = 1;
  int all = 2;
};

// A stage's clock against the gateway's, from round trips, as NTP does it: a
// message leaves at `sent`, the stage reads its clock, the answer arrives at
// `received`. The middle of the two is wrong by half the round trip at most.
// The estimate comes from the recent round trip with the smallest error, where
// age adds the drift between two clocks. The hosts need no synchronised clocks.
// A value, one thread.
class StageClock {
 public:
  // Round trips that are kept: 16 s of heartbeats.
  static constexpr size_t kWindow = 64;
  // Drift between two clocks in nanoseconds per second: 15 ppm, as NTP.
  static constexpr int64_t kDriftPerSecond = 15000;

  // Forgets all: another process may answer from now on.
  void Reset() { trips_.clear(); }
  // Adds one round trip, whose hops are assumed equal. Ignores one that ends
  // before it begins, and clocks 36 years or more away.
  void Add(int64_t sent_ns, int64_t stage_ns, int64_t received_ns,
           ClockHops hops = {});
  ClockEstimate At(int64_t now_ns) const;

 private:
  struct Trip {
    int64_t sent_ns = 0;
    int64_t stage_ns = 0;
    int64_t received_ns = 0;
    ClockHops hops;
  };
  std::deque<Trip> trips_;  // oldest first
};

// Shifts the stages' spans, each in its stage's clock, to the gateway's clock.
// `trace.serialise` and `received_ns`, when the result arrived, are in the
// gateway's already. `clocks` has an entry per stage of the trace.
//
// An estimate may be wrong by more than a hop, but no frame arrives before it
// leaves. So a stage that would break this is moved by the least that restores
// it: then the chain of hops is a better clock than the round trip.
void AlignStages(std::span<const ClockEstimate> clocks, int64_t received_ns,
                 StepTrace& trace);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CLOCK_H_
