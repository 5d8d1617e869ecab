// A gateway and its stages while everything goes wrong around them, by seeds:
// every client's history is the one that it has alone.
//
//   SLUICE_SIMULATION_SEEDS=100000 pipeline_simulation_test
//   SLUICE_SIMULATION_FIRST=4711 SLUICE_SIMULATION_SEEDS=1 ...  # one again
//   SLUICE_SIMULATION_LOG=1 ...  # with the processes' logs
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/simulation/cluster_run.h"

namespace sluice::simulation {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// Sanitizers take their time.
#ifdef SLUICE_ASAN
constexpr uint64_t kSeeds = 100;
#else
constexpr uint64_t kSeeds = 1500;
#endif

TEST(PipelineSimulationTest, OneSeedHasOneRun) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const Outcome first = RunCluster(seed);
    const Outcome again = RunCluster(seed);
    EXPECT_EQ(first.digest, again.digest) << seed;
    EXPECT_EQ(first.totals.moves, again.totals.moves) << seed;
  }
  EXPECT_NE(RunCluster(1).digest, RunCluster(2).digest);
}

// A result behind one that found no reader.
TEST(PipelineSimulationTest, SeedsThatFoundBugs) {
  EXPECT_EQ(RunCluster(9035).failure, "");
}

TEST(PipelineSimulationTest, EveryHistoryIsTheUndisturbedOne) {
  const uint64_t first = FromEnvironment("SLUICE_SIMULATION_FIRST", 0);
  const uint64_t seeds = FromEnvironment("SLUICE_SIMULATION_SEEDS", kSeeds);
  Totals totals;
  for (uint64_t seed = first; seed != first + seeds; ++seed) {
    const Outcome outcome = RunCluster(seed);
    ASSERT_EQ(outcome.failure, "")
        << "again: SLUICE_SIMULATION_FIRST=" << seed
        << " SLUICE_SIMULATION_SEEDS=1 pipeline_simulation_test";
    totals.Add(outcome.totals);
  }
  std::cout << totals.Text() << "\n";
  if (seeds >= 100) {
    EXPECT_GT(totals.ahead, 0u);
  }
}

}  // namespace
}  // namespace sluice::simulation
