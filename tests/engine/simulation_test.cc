// The engine's sequences while everything goes wrong around them, by seeds:
// each sequence's history is the one that it has alone, however its pipeline is
// lost, comes back smaller or larger, answers late, twice or out of turn, or
// has no host for some of its experts.
//
//   SLUICE_SIMULATION_SEEDS=100000 engine_simulation_test
//   SLUICE_SIMULATION_FIRST=4711 SLUICE_SIMULATION_SEEDS=1 ...  # one again
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/engine/random_run.h"

namespace sluice {
namespace {

uint32_t FromEnvironment(const char* name, uint32_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr
             ? otherwise
             : static_cast<uint32_t>(std::strtoul(value, nullptr, 10));
}

Faults RandomFaults(uint32_t seed) {
  Faults faults;
  // Every kind alone, and all at once.
  const auto has = [&](uint32_t kind) {
    return seed % 8 == kind || seed % 8 == 7;
  };
  if (has(0)) faults.losses = 20;
  if (has(1)) faults.contradictions = 20;
  if (has(2)) faults.no_host = 60;
  if (has(3)) faults.drains = 20;
  if (has(4)) faults.losses = 30, faults.late_results = 100;
  if (has(5)) faults.losses = 20, faults.resizes = 700;
  if (has(6)) faults.jumps = 20, faults.no_host = 30, faults.losses = 10;
  if (seed / 8 % 2 == 1) faults.survivals = 850;
  if (seed / 32 % 2 == 1) faults.recuts = faults.moves = 400;
  return faults;
}

Totals Simulate(uint32_t seed) {
  Shape shape = RandomShape(seed);
  shape.options.recovery_timeout = std::chrono::seconds(30);
  shape.options.max_replays = 8;
  shape.logs = seed / 16 % 2 == 1;
  shape.constrained = seed % 3 == 2 && !shape.options.propose_drafts;
  const Totals totals = RunRandom(shape, seed, 12, RandomFaults(seed));
  EXPECT_FALSE(::testing::Test::HasFailure())
      << "again: SLUICE_SIMULATION_FIRST=" << seed
      << " SLUICE_SIMULATION_SEEDS=1 engine_simulation_test";
  return totals;
}

// Long prompts of two clients took each other's place without end.
TEST(SimulationTest, SeedsThatFoundBugs) {
  for (const uint32_t seed : {2706}) Simulate(seed);
}

TEST(SimulationTest, EveryHistoryIsTheUndisturbedOne) {
  const uint32_t first = FromEnvironment("SLUICE_SIMULATION_FIRST", 0);
  const uint32_t seeds = FromEnvironment("SLUICE_SIMULATION_SEEDS", 400);
  Totals sum;
  uint64_t steps = 0, recoveries = 0, replayed = 0, kept = 0, sequences = 0;
  for (uint32_t seed = first; seed != first + seeds; ++seed) {
    const Totals totals = Simulate(seed);
    if (HasFailure()) return;
    steps += totals.counters.steps;
    recoveries += totals.counters.recoveries;
    replayed += totals.counters.replayed_tokens;
    kept += totals.counters.kept_tokens;
    sequences += totals.num_sequences;
    sum.moves += totals.moves;
    sum.ended_by_faults += totals.ended_by_faults;
    sum.faults.losses += totals.faults.losses;
    sum.faults.survivals += totals.faults.survivals;
    sum.faults.recuts += totals.faults.recuts;
    sum.faults.moves += totals.faults.moves;
    sum.faults.late_results += totals.faults.late_results;
    sum.faults.contradictions += totals.faults.contradictions;
    sum.faults.no_host += totals.faults.no_host;
    sum.faults.drains += totals.faults.drains;
    sum.faults.resizes += totals.faults.resizes;
    sum.faults.jumps += totals.faults.jumps;
  }
  const Faults& faults = sum.faults;
  std::cout << seeds << " seeds: " << sum.moves << " moves, " << steps
            << " steps, " << sequences << " sequences, " << sum.ended_by_faults
            << " ended by faults; " << faults.losses << " losses, "
            << faults.survivals << " with survivors, " << faults.recuts
            << " of them with other layers, " << faults.late_results
            << " late results, " << faults.contradictions << " contradictions, "
            << faults.no_host << " parts without a host, " << faults.drains
            << " drains, " << faults.resizes << " resizes, " << faults.jumps
            << " jumps; " << recoveries << " recoveries, " << replayed
            << " tokens replayed, " << kept << " of them on some stages\n";
  if (seeds < 100) return;
  EXPECT_GT(recoveries, seeds / 4);
  EXPECT_GT(faults.no_host, 0);
  EXPECT_GT(kept, 0u);
  EXPECT_GT(faults.recuts, 0);
  EXPECT_GT(faults.moves, 0);
  // Faults are pauses: few sequences meet more of them than are allowed.
  EXPECT_LT(sum.ended_by_faults, static_cast<int64_t>(sequences / 4));
}

}  // namespace
}  // namespace sluice
