#include "tests/simulation/totals.h"

#include <algorithm>

#include "common/base/cat.h"

namespace sluice::simulation {

const char* ToString(Fault fault) {
  static constexpr const char* kNames[kNumFaults] = {"crashes",
                                                     "power losses",
                                                     "stops",
                                                     "leaves",
                                                     "breaks",
                                                     "partitions",
                                                     "one-way partitions",
                                                     "slow times",
                                                     "clock jumps",
                                                     "flaky ways",
                                                     "stops of a gateway",
                                                     "crashes of a gateway",
                                                     "leaves of a gateway"};
  return kNames[static_cast<size_t>(fault)];
}

void Totals::Add(const Totals& other) {
  seeds += other.seeds;
  seconds += other.seconds;
  to_ends = std::max(to_ends, other.to_ends);
  moves += other.moves;
  steps += other.steps;
  ahead += other.ahead;
  tokens += other.tokens;
  clients += other.clients;
  refused += other.refused;
  cancelled += other.cancelled;
  left += other.left;
  recoveries += other.recoveries;
  replayed += other.replayed;
  kept += other.kept;
  stale += other.stale;
  suspensions += other.suspensions;
  shrinks += other.shrinks;
  growths += other.growths;
  takeovers += other.takeovers;
  rogues += other.rogues;
  for (size_t i = 0; i < faults.size(); ++i) faults[i] += other.faults[i];
  for (const auto& [what, count] : other.excuses) excuses[what] += count;
}

std::string Totals::Text() const {
  std::string text =
      Cat(seeds, " seeds: ", seconds / 3600, " hours, ", moves, " moves, ",
          steps, " steps, ", ahead, " times ahead at one of several stages, ",
          clients, " clients with ", tokens, " tokens, ", refused, " refused, ",
          cancelled, " cancelled, ", left, " left by their gateway; ",
          recoveries, " recoveries, ", suspensions, " suspensions, ", replayed,
          " tokens replayed, ", kept, " of them on some stages, ", stale,
          " stale results, ", shrinks, " shrinks, ", growths, " growths, ",
          takeovers, " takeovers, ", rogues, " rogues; all ends at most ",
          to_ends, " s after the last fault; faults:");
  for (int i = 0; i < kNumFaults; ++i) {
    text += Cat(i == 0 ? " " : ", ", faults[static_cast<size_t>(i)], " ",
                ToString(static_cast<Fault>(i)));
  }
  text += "; ended early:";
  for (const auto& [what, count] : excuses) {
    text += Cat(" ", count, " \"", what, "\"");
  }
  return text;
}

}  // namespace sluice::simulation
