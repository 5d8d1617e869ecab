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

// How a stage's clock relates to ours, from round trips, as NTP does: a
// message leaves at `sent`, the stage reads its clock, the answer arrives at
// `received`. The stage read it at some time between the two, so the middle is
// wrong by half the round trip at most. Of the latest round trips the one with
// the smallest error counts, where age adds what two clocks may drift apart.
// Hosts need not be synchronised, nor their clocks have a common start. A
// value, one thread.
class StageClock {
 public:
  // Round trips that are remembered: 16 s of heartbeats.
  static constexpr size_t kWindow = 64;
  // Nanoseconds that two clocks drift apart in a second: 15 ppm, as NTP.
  static constexpr int64_t kDriftPerSecond = 15000;

  // Another process may answer from now on.
  void Reset() { trips_.clear(); }
  // One round trip, whose hops are taken to be alike. One that ends before it
  // begins is ignored, and one whose clock is 36 years away or more.
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

// Brings the stages' spans, each in its stage's clock, to the gateway's.
// `trace.serialise` and `received_ns`, when the result arrived, are in the
// gateway's already. `clocks` has an entry per stage of the trace.
//
// An estimate may be wrong by more than a hop takes; but no frame arrives
// before it was sent. So a stage that would have received a frame before it
// left, or sent one after it arrived, is moved by the least that makes it
// possible: the chain of hops is a better clock than the round trip then.
void AlignStages(std::span<const ClockEstimate> clocks, int64_t received_ns,
                 StepTrace& trace);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_CLOCK_H_
