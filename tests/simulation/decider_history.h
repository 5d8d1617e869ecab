#ifndef SLUICE_TESTS_SIMULATION_DECIDER_HISTORY_H_
#define SLUICE_TESTS_SIMULATION_DECIDER_HISTORY_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "common/pipeline/gateway/stage_life.h"

namespace sluice::simulation {

// What happened in one history of deciders, or in several.
struct HistoryTotals {
  uint64_t histories = 0;
  uint64_t events = 0;   // messages, ends, ticks and faults
  uint64_t actions = 0;  // of the deciders
  uint64_t faults = 0;
  uint64_t ups = 0;
  uint64_t takeovers = 0;
  uint64_t shrinks = 0;
  uint64_t growths = 0;
  uint64_t failed_opens = 0;  // of plans, at once
  uint64_t calm_ms = 0;       // the longest way to a pipeline without faults
  // The changes of a process' state that were seen.
  std::set<std::pair<LifeKind, LifeKind>> changes;
  void Add(const HistoryTotals& other);
  std::string Text() const;
};

struct HistoryOutcome {
  std::string failure;  // the law that was broken; empty: none was
  uint64_t digest = 0;  // of all that was decided
  HistoryTotals totals;
};

// Runs one or two ClusterDeciders with stages of the simplest kind, which obey
// the product's rules for holds and terms: for some time messages are lost,
// processes come and go, stand still and are told to end, ways are blocked in
// one direction or both, rogues raise terms; then nothing goes wrong any more.
// Equal seeds give equal histories.
HistoryOutcome RunHistory(uint64_t seed);

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_DECIDER_HISTORY_H_
