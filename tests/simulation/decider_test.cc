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
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/pipeline/gateway/cluster_decider.h"
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

using Changes = std::set<std::pair<LifeKind, LifeKind>>;

// One gateway with two places, s0 and s1, and the spare s2, told by hand what
// befalls it.
class Directed {
 public:
  Directed() : decider_(OptionsOf(), now_), kinds_(3, LifeKind::kAway) {
    Tick();
  }

  void Tick() {
    now_ += std::chrono::milliseconds(250);
    for (const auto& stage : decider_.places().stages()) {
      if (stage->welcomed()) stage->OnHeard(now_);
    }
    decider_.Tick(now_, now_, kBusy);
    CarryOut();
  }
  void Welcome(size_t process, const StagePlace& place, uint64_t term = 1) {
    StageFacts facts;
    facts.address = Cat("s", process);
    facts.model_digest = std::string(1, 'd');
    facts.num_layers = 12;
    facts.limits.max_steps_in_flight = 4;
    facts.limits.plan.num_blocks = blocks_.at(process);
    facts.assignable = true;
    facts.term = term;
    facts.first_layer = place.first_layer;
    facts.last_layer = place.last_layer;
    decider_.OnWelcome(At(process),
                       StageWelcome{std::move(facts), Epoch(term, 0), "run"},
                       now_);
    CarryOut();
  }
  // What the processes have in their KV caches, from their Welcomes on.
  void SetBlocks(std::vector<int32_t> blocks) { blocks_ = std::move(blocks); }
  void Assigned(size_t process, const Status& status = OkStatus()) {
    decider_.OnAssigned(At(process), decider_.epoch(), KvAnswer(), status,
                        now_);
    CarryOut();
  }
  void Drained(size_t process) {
    decider_.OnDrained(At(process));
    CarryOut();
  }
  void BringUp() {
    Welcome(2, kFirst);
    Welcome(0, kFirst);
    Welcome(1, kSecond);
    Assigned(1);
    Assigned(0);
    decider_.OnPlansOpen(decider_.epoch(), now_);
    CarryOut();
  }
  void Draining(size_t process) {
    decider_.OnDraining(At(process), std::chrono::seconds(5), now_);
    CarryOut();
    decider_.ReleaseLeaving(At(process), kBusy, now_);
    CarryOut();
  }
  void Gone(size_t process) {
    decider_.OnEnd(At(process),
                   Unavailable("failed to connect to all addresses: "
                               "Connection refused"),
                   now_);
    CarryOut();
  }
  void BeginDrain() {
    decider_.BeginDrain();
    CarryOut();
  }

  ClusterDecider& decider() { return decider_; }
  const StageProcess& process(size_t id) const {
    return *decider_.places().stages()[At(id)];
  }
  std::string message() const { return decider_.Report(now_, now_).message; }
  const Changes& changes() const { return changes_; }
  // The loads that `process` was asked for.
  std::vector<StagePlace> loads(size_t process) const {
    std::vector<StagePlace> places;
    for (const act::Action& action : actions_) {
      const auto* load = std::get_if<act::SendLoad>(&action);
      if (load != nullptr && load->process == process) {
        places.push_back(load->place);
      }
    }
    return places;
  }

  // The latest epoch that `process` was assigned.
  std::optional<act::SendAssign> assigned(size_t process) const {
    std::optional<act::SendAssign> latest;
    for (const act::Action& action : actions_) {
      const auto* assign = std::get_if<act::SendAssign>(&action);
      if (assign != nullptr && assign->process == process) latest = *assign;
    }
    return latest;
  }

  static constexpr StagePlace kFirst{0, 6};
  static constexpr StagePlace kSecond{6, 12};

 private:
  static constexpr OwnerSigns kBusy{.is_idle = false};

  static PipelineOptions OptionsOf() {
    PipelineOptions options;
    options.stages = {"s0", "s1"};
    options.spares = {"s2"};
    options.places = {kFirst, kSecond};
    return options;
  }
  size_t At(size_t id) const {
    const StageProcesses& all = decider_.places().stages();
    size_t index = 0;
    while (all[index]->id() != id) ++index;
    return index;
  }
  void CarryOut() {
    while (auto action = decider_.Next()) actions_.push_back(*action);
    for (const auto& stage : decider_.places().stages()) {
      LifeKind& before = kinds_[stage->id()];
      if (stage->kind() != before) changes_.insert({before, stage->kind()});
      before = stage->kind();
    }
  }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  ClusterDecider decider_;
  std::vector<LifeKind> kinds_;
  std::vector<int32_t> blocks_ = {32, 32, 32};
  std::vector<act::Action> actions_;
  Changes changes_;
};

// A spare that was asked to load takes the place that it holds, and is behind
// the term of the stage that comes back.
Changes RaiseOfAnAskedStage() {
  Directed gateway;
  gateway.BringUp();
  gateway.Draining(1);  // s2 is asked for its layers
  gateway.Gone(0);
  gateway.Tick();  // s2 has the place of s0
  gateway.Tick();
  gateway.Welcome(1, Directed::kSecond, 2);
  return gateway.changes();
}

TEST(DeciderTest, AStageThatWasAskedToLoadIsRaised) {
  EXPECT_TRUE(
      RaiseOfAnAskedStage().contains({LifeKind::kAsked, LifeKind::kTrying}));
}

// A stage's answer to the gateway before may come on this one's stream.
TEST(DeciderTest, ADrainedThatNobodyAskedForChangesNothing) {
  Directed gateway;
  gateway.Welcome(0, Directed::kFirst);
  gateway.Welcome(1, {});
  gateway.Drained(1);
  gateway.Tick();
  EXPECT_EQ(gateway.loads(1), std::vector{Directed::kSecond});
  gateway.BeginDrain();
  gateway.Drained(0);
  EXPECT_FALSE(gateway.decider().drained()) << "s1 has not answered";
}

TEST(DeciderTest, ARefusalToLoadIsToldAfterDrained) {
  Directed gateway;
  gateway.Welcome(0, Directed::kFirst);
  gateway.Welcome(1, {});
  gateway.Tick();
  ASSERT_EQ(gateway.loads(1).size(), 1u);
  gateway.BeginDrain();
  gateway.Drained(1);
  gateway.Assigned(1, FailedPrecondition("no room for it"));
  EXPECT_TRUE(gateway.process(1).refused());
  EXPECT_EQ(gateway.message(), "stage 1 (s1): no room for it");
}

// The place of s1, which is told to end, moves to s2.
void MoveByPlan(Directed& gateway) {
  gateway.BringUp();
  gateway.Draining(1);
  gateway.Gone(2);
  for (int i = 0; i < 8; ++i) gateway.Tick();
  gateway.Welcome(2, Directed::kSecond);
  for (int i = 0; i < 8; ++i) gateway.Tick();
}

// Returns what s2 is assigned then.
std::optional<act::SendAssign> MoveWith(std::vector<int32_t> blocks) {
  Directed gateway;
  gateway.SetBlocks(std::move(blocks));
  MoveByPlan(gateway);
  return gateway.assigned(2);
}

TEST(DeciderTest, ADonorWithAPlaceThatEndsDoesNotHoldItsPlace) {
  Directed gateway;
  MoveByPlan(gateway);
  EXPECT_TRUE(gateway.process(1).leaving()) << "s2 copies from it";
  gateway.Draining(0);
  EXPECT_FALSE(gateway.process(0).linked());
}

TEST(DeciderTest, APlannedMoveKeepsTheLimitsForWhichItCopies) {
  const auto same = MoveWith({64, 32, 64});
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(same->limits.plan.num_blocks, 32);
  EXPECT_FALSE(same->donors.empty());
}

TEST(DeciderTest, APlannedMoveToLessMemoryCopiesNothing) {
  const auto less = MoveWith({64, 32, 16});
  ASSERT_TRUE(less.has_value());
  EXPECT_EQ(less->limits.plan.num_blocks, 16);
  EXPECT_TRUE(less->donors.empty());
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
  EXPECT_GT(totals.failed_opens, 0u);
  // A raise of a stage that was asked to load takes 10,000s of histories.
  totals.changes.merge(RaiseOfAnAskedStage());
  for (const LifeRow& row : kLifeRows) {
    if (row.from == row.to) continue;
    EXPECT_TRUE(totals.changes.contains({row.from, row.to}))
        << static_cast<int>(row.from) << " to " << static_cast<int>(row.to);
  }
}

}  // namespace
}  // namespace sluice::simulation
