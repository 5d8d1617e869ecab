// The deciders of one or two gateways alone, by seeds: what they do obeys the
// laws of DeciderLaws after every event, and a cluster in which nothing goes
// wrong any more has a pipeline soon.
//
//   SLUICE_SIMULATION_SEEDS=1000000 pipeline_decider_test
//   SLUICE_SIMULATION_FIRST=4711 SLUICE_SIMULATION_SEEDS=1 ...  # one again
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "tests/simulation/decider_history.h"

namespace sluice::simulation {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// Sanitizers take their time.
#ifdef SLUICE_ASAN
constexpr uint64_t kSeeds = 300;
#else
constexpr uint64_t kSeeds = 4000;
#endif

uint64_t SeedsByMode() {
  return std::getenv("SLUICE_LONG") != nullptr ? 250 * kSeeds : kSeeds;
}

TEST(DeciderTest, OneSeedHasOneHistory) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(RunHistory(seed).digest, RunHistory(seed).digest) << seed;
  }
  EXPECT_NE(RunHistory(1).digest, RunHistory(2).digest);
}

TEST(DeciderTest, EveryHistoryObeysTheLaws) {
  const uint64_t first = FromEnvironment("SLUICE_SIMULATION_FIRST", 0);
  const uint64_t seeds =
      FromEnvironment("SLUICE_SIMULATION_SEEDS", SeedsByMode());
  const auto begun = std::chrono::steady_clock::now();
  HistoryTotals totals;
  for (uint64_t seed = first; seed != first + seeds; ++seed) {
    const HistoryOutcome outcome = RunHistory(seed);
    ASSERT_EQ(outcome.failure, "")
        << "again: SLUICE_SIMULATION_FIRST=" << seed
        << " SLUICE_SIMULATION_SEEDS=1 pipeline_decider_test";
    totals.Add(outcome.totals);
  }
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begun;
  std::cout << totals.Text() << "; "
            << static_cast<double>(seeds) / took.count() << " histories/s\n";
  if (seeds < 1000) return;
  // Every change of a process' state is one of these histories'. A raise of a
  // stage that was asked to load takes 10,000s of them, a raise of one that was
  // just told to end, between two ticks, takes millions.
  for (const LifeRow& row : kLifeRows) {
    const bool is_raise = row.event == LifeEvent::kHello;
    const bool is_rare =
        is_raise && (row.from == LifeKind::kLeaving ||
                     (row.from == LifeKind::kAsked && seeds < 200000));
    if (row.from == row.to || is_rare) continue;
    EXPECT_TRUE(totals.changes.contains({row.from, row.to}))
        << static_cast<int>(row.from) << " to " << static_cast<int>(row.to);
  }
}

}  // namespace
}  // namespace sluice::simulation
