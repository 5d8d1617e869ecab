#include "common/placement/place_by_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "common/placement/order_search.h"
#include "common/placement/split_bound.h"
#include "common/placement/subset_search.h"

namespace sluice::placement {
namespace {

// Draws numbers; the same on every machine.
class Draw {
 public:
  explicit Draw(uint32_t seed) : engine_(seed) {}
  int32_t Int(int32_t low, int32_t high) {
    const auto span = static_cast<uint32_t>(high - low + 1);
    return low + static_cast<int32_t>(engine_() % span);
  }
  double Real(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() % 100000) / 1e5;
  }

 private:
  std::mt19937 engine_;
};

// Machines whose layers take times of their own, and that hold so many. The
// slowest layer takes `spread` times as long as the fastest.
SplitCosts Drawn(Draw& draw, int32_t machines, int32_t layers,
                 double spread = 2) {
  SplitCosts costs;
  costs.layers = layers;
  std::vector<double> layer(At(layers));
  for (double& one : layer) one = draw.Real(1, spread);
  for (int32_t m = 0; m < machines; ++m) {
    KindCosts kind{RangeTable(layers), RangeTable(layers), RangeTable(layers)};
    const double pace = draw.Real(0.5, 4);
    const double behind = draw.Real(0.5, 2);
    const double head = draw.Real(0, 3);
    const int32_t most = draw.Int(1, layers);
    for (int32_t first = 0; first < layers; ++first) {
      double seconds = 0;
      for (int32_t last = first + 1; last <= layers; ++last) {
        seconds += pace * layer[At(last - 1)];
        if (last - first > most) continue;
        const double all = seconds + (last == layers ? head : 0);
        kind.pass.At(first, last) = all;
        kind.turn.At(first, last) = behind * all;
        kind.crowding.At(first, last) = 0.1;
      }
    }
    costs.kinds.push_back(kind);
    costs.kind_of.push_back(m);
    costs.gateway_pass.push_back(draw.Real(0, 1));
    costs.gateway_turn.push_back(costs.gateway_pass.back());
  }
  for (int32_t i = 0; i < machines * machines; ++i) {
    costs.hop.push_back(draw.Real(0.1, 2));
    costs.back.push_back(draw.Real(0.1, 2));
  }
  return costs;
}

// Every order of every set of machines, and every cut of the layers.
class EverySplit {
 public:
  explicit EverySplit(const SplitProblem& problem) : problem_(problem) {}

  double Least() {
    Extend(0, 0, 0);
    return least_;
  }

 private:
  void Extend(int32_t layer, double pass, double turn) {
    const SplitCosts& costs = problem_.costs;
    if (layer == costs.layers) {
      if (Obeys()) {
        least_ = std::min(
            least_,
            problem_.goal.Seconds(
                pass + costs.Back(order_.back(), order_.front()), turn));
      }
      return;
    }
    for (int32_t m = 0; m < costs.num_machines(); ++m) {
      if (std::ranges::count(order_, m) > 0) continue;
      const bool is_first = order_.empty();
      const double before =
          is_first ? costs.gateway_pass[At(m)] : costs.Hop(order_.back(), m);
      const double gateway = is_first ? costs.gateway_turn[At(m)] : 0;
      order_.push_back(m);
      for (int32_t last = layer + 1; last <= costs.layers; ++last) {
        const double seconds = costs.Of(m).pass.At(layer, last);
        if (seconds == kNever) continue;
        Extend(last, pass + before + seconds,
               std::max(turn, costs.Of(m).turn.At(layer, last) + gateway));
      }
      order_.pop_back();
    }
  }

  bool Obeys() const {
    const SplitRules& rules = problem_.rules;
    const auto count = static_cast<int32_t>(order_.size());
    if (count < rules.least || count > rules.most) return false;
    if (rules.needed >= 0 && std::ranges::count(order_, rules.needed) == 0) {
      return false;
    }
    if (rules.last >= 0 && order_.back() != rules.last) return false;
    for (size_t m = 0; m < rules.barred.size(); ++m) {
      if (rules.barred[m] &&
          std::ranges::count(order_, static_cast<int32_t>(m)) > 0) {
        return false;
      }
    }
    return !rules.in_order || std::ranges::is_sorted(order_);
  }

  const SplitProblem& problem_;
  std::vector<int32_t> order_;
  double least_ = kNever;
};

// The seconds of a split, from its parts.
double SecondsOf(const SplitProblem& problem, const TimedSplit& split) {
  const SplitCosts& costs = problem.costs;
  double pass = 0;
  double turn = 0;
  for (size_t i = 0; i < split.parts.size(); ++i) {
    const auto& [machine, range] = split.parts[i];
    const bool is_first = i == 0;
    pass += costs.Of(machine).pass.At(range.first, range.last) +
            (is_first ? costs.gateway_pass[At(machine)]
                      : costs.Hop(split.parts[i - 1].machine, machine));
    turn = std::max(turn, costs.Of(machine).turn.At(range.first, range.last) +
                              (is_first ? costs.gateway_turn[At(machine)] : 0));
  }
  pass += costs.Back(split.parts.back().machine, split.parts[0].machine);
  return problem.goal.Seconds(pass, turn);
}

void ExpectTheFastest(const SplitProblem& problem) {
  const double least = EverySplit(problem).Least();
  const PlacedByTime placed = PlaceByTime(problem);
  ASSERT_EQ(placed.fits(), least < kNever);
  if (!placed.fits()) return;
  EXPECT_NEAR(placed.seconds, least, 1e-8 * least);
  EXPECT_NEAR(SecondsOf(problem, placed.split), placed.seconds, 1e-9 * least);
  EXPECT_TRUE(placed.exact);
  const double pass = OrderSearch(problem).Best(kNever, kNever).pass;
  const double by_set =
      SubsetSearch(problem, 1 << 30).Best(kNever, kNever).pass;
  EXPECT_NEAR(by_set, pass, 1e-9 * pass);
  const double bound = BoundOf(problem).seconds;
  EXPECT_LE(bound, least * (1 + 1e-9));
  const PlacedByTime even = LeastCrowded(problem, placed);
  EXPECT_NEAR(SecondsOf(problem, even.split), placed.seconds, 1e-8 * least);
}

TEST(PlaceByTimeTest, UpToSixMachinesNoOtherSplitIsFaster) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Draw draw(seed);
    const int32_t machines = draw.Int(1, 6);
    SplitProblem problem = {Drawn(draw, machines, draw.Int(1, 7)), {}, {}};
    SCOPED_TRACE(seed);
    ExpectTheFastest(problem);
    problem.goal.groups = draw.Int(2, 6);
    ExpectTheFastest(problem);
    problem.goal.adds_turn = true;
    ExpectTheFastest(problem);
  }
}

TEST(PlaceByTimeTest, RulesAreKept) {
  for (uint32_t seed = 100; seed < 120; ++seed) {
    Draw draw(seed);
    const int32_t machines = draw.Int(3, 5);
    SplitProblem problem = {Drawn(draw, machines, 6), {}, {}};
    problem.goal.groups = draw.Int(1, 3);
    SCOPED_TRACE(seed);
    problem.rules.needed = draw.Int(0, machines - 1);
    ExpectTheFastest(problem);
    problem.rules.last = draw.Int(0, machines - 1);
    ExpectTheFastest(problem);
    problem.rules = {};
    problem.rules.in_order = true;
    problem.rules.least = 2;
    ExpectTheFastest(problem);
    problem.rules.most = 2;
    problem.rules.barred.assign(At(machines), false);
    problem.rules.barred[At(draw.Int(0, machines - 1))] = true;
    ExpectTheFastest(problem);
  }
}

TEST(PlaceByTimeTest, EqualMachinesAreTriedOnce) {
  Draw draw(7);
  SplitProblem problem = {Drawn(draw, 6, 6), {3, false}, {}};
  for (int32_t& kind : problem.costs.kind_of) kind = kind % 2;
  for (int32_t a = 0; a < 6; ++a) {
    problem.costs.gateway_pass[At(a)] = problem.costs.gateway_turn[At(a)] = 0.5;
    for (int32_t b = 0; b < 6; ++b) {
      problem.costs.hop[problem.costs.Pair(a, b)] = 0.3;
      problem.costs.back[problem.costs.Pair(a, b)] = 0.2;
    }
  }
  ExpectTheFastest(problem);
}

TEST(PlaceByTimeTest, TwelveMachinesAreNearTheBound) {
  for (uint32_t seed = 200; seed < 210; ++seed) {
    Draw draw(seed);
    // Layers of a model are alike, and hops are short beside stages.
    SplitProblem problem = {Drawn(draw, 12, 14, /*spread=*/1.03), {}, {}};
    for (double& hop : problem.costs.hop) hop *= 0.05;
    for (double& back : problem.costs.back) back *= 0.05;
    SCOPED_TRACE(seed);
    for (const double groups : {1.0, 4.0}) {
      problem.goal.groups = groups;
      const PlacedByTime placed = PlaceByTime(problem);
      ASSERT_TRUE(placed.fits());
      EXPECT_FALSE(placed.exact);
      EXPECT_LE(placed.bound, placed.seconds);
      EXPECT_LE(placed.seconds, 1.05 * placed.bound) << groups;
      EXPECT_NEAR(SecondsOf(problem, placed.split), placed.seconds,
                  1e-9 * placed.seconds);
    }
  }
}

TEST(PlaceByTimeTest, NothingIsPlacedWhereNothingFits) {
  Draw draw(1);
  SplitProblem problem = {Drawn(draw, 3, 4), {}, {}};
  // A layer for each of three machines.
  for (KindCosts& kind : problem.costs.kinds) {
    for (int32_t first = 0; first < 4; ++first) {
      for (int32_t last = first + 2; last <= 4; ++last) {
        kind.pass.At(first, last) = kind.turn.At(first, last) = kNever;
      }
    }
  }
  EXPECT_FALSE(PlaceByTime(problem).fits());
  EXPECT_EQ(BoundOf(problem).seconds, kNever);
}

TEST(LeastCrowdedTest, OfEquallyFastSplitsTheEvenOneIsTaken) {
  SplitProblem problem;
  SplitCosts& costs = problem.costs;
  costs.layers = 8;
  KindCosts kind{RangeTable(8), RangeTable(8), RangeTable(8)};
  for (int32_t first = 0; first < 8; ++first) {
    for (int32_t last = first + 1; last <= 8; ++last) {
      if (last - first > 7) continue;
      kind.pass.At(first, last) = kind.turn.At(first, last) = last - first;
      kind.crowding.At(first, last) = (last - first) / 8.0;
    }
  }
  costs.kinds = {kind};
  costs.kind_of = {0, 0};
  costs.gateway_pass = costs.gateway_turn = {0, 0};
  costs.hop = costs.back = {1, 1, 1, 1};
  const PlacedByTime placed = LeastCrowded(problem, PlaceByTime(problem));
  ASSERT_TRUE(placed.fits());
  EXPECT_EQ(placed.split.parts,
            (std::vector<SplitPart>{{0, {0, 4}}, {1, {4, 8}}}));
}

}  // namespace
}  // namespace sluice::placement
