#include "common/placement/split_bound.h"

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

namespace sluice::placement {
namespace {

// With more machines the first and the last one are not tried in pairs.
constexpr int32_t kMostPaired = 16;
// Halvings of the longest turn, and how near they have to come.
constexpr int32_t kMostHalvings = 40;
constexpr double kNear = 1.005;

// Seconds by number of layers.
using Menu = std::vector<double>;

// The menus of a machine in each place, without hops, for turns up to a limit.
struct Menus {
  Menu first, middle, last;
};

// Sums of menus with 0, 1, and 2 or more machines between the ends.
constexpr size_t kLevels = 3;
using Levels = std::array<Menu, kLevels>;
// Where each sum comes from: the layers of the last machine, 0 for no machine,
// and the level of the sum before it.
struct Source {
  int32_t layers = 0;
  size_t level = 0;
};
using Sources = std::array<std::vector<Source>, kLevels>;

class Relaxation {
 public:
  Relaxation(const SplitProblem& problem, double most_turn)
      : costs_(problem.costs), layers_(costs_.layers), most_turn_(most_turn) {
    for (int32_t i = 0; i < costs_.num_machines(); ++i) {
      const auto& barred = problem.rules.barred;
      if (barred.empty() || !barred[At(i)]) machines_.push_back(i);
    }
    std::vector<Menu> of_kind;
    for (const KindCosts& kind : costs_.kinds) {
      of_kind.push_back(MiddleMenu(kind));
    }
    for (const int32_t machine : machines_) {
      menus_.push_back(MenusOf(machine, of_kind));
      in_.push_back(Shortest(
          machine, [&](int32_t other) { return costs_.Hop(other, machine); }));
      out_.push_back(Shortest(
          machine, [&](int32_t other) { return costs_.Hop(machine, other); }));
    }
  }

  SplitBound Solve() {
    Alone();
    if (static_cast<int32_t>(machines_.size()) > kMostPaired) {
      Unpaired();
      return best_;
    }
    for (size_t f = 0; f < machines_.size(); ++f) {
      for (size_t l = 0; l < machines_.size(); ++l) {
        if (f == l) continue;
        Two(f, l);
        Three(f, l);
        More(f, l);
      }
    }
    return best_;
  }

 private:
  // The cheapest runs that are neither first nor last.
  Menu MiddleMenu(const KindCosts& kind) const {
    Menu menu(At(layers_) + 1, kNever);
    for (int32_t first = 1; first < layers_; ++first) {
      for (int32_t last = first + 1; last < layers_; ++last) {
        if (kind.turn.At(first, last) > most_turn_) continue;
        double& least = menu[At(last - first)];
        least = std::min(least, kind.pass.At(first, last));
      }
    }
    return menu;
  }

  // The shortest way between a machine and another one.
  template <class Way>
  double Shortest(int32_t machine, Way way) const {
    double least = kNever;
    for (const int32_t other : machines_) {
      if (other != machine) least = std::min(least, way(other));
    }
    return least;
  }

  Menus MenusOf(int32_t machine, const std::vector<Menu>& of_kind) const {
    const KindCosts& kind = costs_.Of(machine);
    Menus menus;
    menus.middle = of_kind[At(costs_.kind_of[At(machine)])];
    menus.first = menus.last = Menu(At(layers_) + 1, kNever);
    for (int32_t n = 1; n < layers_; ++n) {
      if (kind.turn.At(0, n) + costs_.gateway_turn[At(machine)] <= most_turn_) {
        menus.first[At(n)] =
            kind.pass.At(0, n) + costs_.gateway_pass[At(machine)];
      }
      if (kind.turn.At(layers_ - n, layers_) <= most_turn_) {
        menus.last[At(n)] = kind.pass.At(layers_ - n, layers_);
      }
    }
    return menus;
  }

  void Keep(double seconds, std::vector<int32_t> order) {
    if (seconds < best_.seconds) best_ = {seconds, std::move(order)};
  }

  double Hop(size_t from, size_t to) const {
    return costs_.Hop(machines_[from], machines_[to]);
  }

  void Alone() {
    for (const int32_t machine : machines_) {
      const KindCosts& kind = costs_.Of(machine);
      const auto at = At(machine);
      if (kind.turn.At(0, layers_) + costs_.gateway_turn[at] > most_turn_) {
        continue;
      }
      Keep(kind.pass.At(0, layers_) + costs_.gateway_pass[at] +
               costs_.Back(machine, machine),
           {machine});
    }
  }

  // Returns the least seconds of sums and the last machine together, and how
  // many layers the last machine has.
  std::pair<double, int32_t> End(const Menu& sums, size_t last) const {
    std::pair<double, int32_t> least = {kNever, 0};
    for (int32_t n = 1; n < layers_; ++n) {
      const double seconds = sums[At(layers_ - n)] + menus_[last].last[At(n)];
      if (seconds < least.first) least = {seconds, n};
    }
    return least;
  }

  void Two(size_t first, size_t last) {
    Keep(End(menus_[first].first, last).first + Hop(first, last) +
             costs_.Back(machines_[last], machines_[first]),
         {machines_[first], machines_[last]});
  }

  // Returns the sums with the machine's layers behind those of `sums`.
  Menu With(const Menu& sums, const Menu& menu) const {
    Menu with(sums.size(), kNever);
    for (int32_t own = 1; own <= layers_; ++own) {
      if (menu[At(own)] == kNever) continue;
      for (int32_t n = own; n <= layers_; ++n) {
        with[At(n)] = std::min(with[At(n)], sums[At(n - own)] + menu[At(own)]);
      }
    }
    return with;
  }

  void Three(size_t first, size_t last) {
    for (size_t i = 0; i < machines_.size(); ++i) {
      if (i == first || i == last) continue;
      if (pairs_.empty()) pairs_.resize(machines_.size() * machines_.size());
      Menu& pair = pairs_[first * machines_.size() + i];
      if (pair.empty()) pair = With(menus_[first].first, menus_[i].middle);
      Keep(End(pair, last).first + Hop(first, i) + Hop(i, last) +
               costs_.Back(machines_[last], machines_[first]),
           {machines_[first], machines_[i], machines_[last]});
    }
  }

  // Puts a machine, or no machine, behind the sums of all levels.
  void Add(const Menu& menu, double hops, Levels& sums,
           Sources& sources) const {
    for (size_t level = kLevels; level > 0; --level) {
      sources[level - 1].assign(sums[0].size(), {0, level - 1});
    }
    int32_t most = layers_;
    while (most > 0 && menu[At(most)] == kNever) --most;
    for (const auto& [from, to] :
         {std::pair<size_t, size_t>{2, 2}, std::pair<size_t, size_t>{1, 2},
          std::pair<size_t, size_t>{0, 1}}) {
      for (int32_t n = layers_; n > 0; --n) {
        double& least = sums[to][At(n)];
        for (int32_t own = 1; own <= std::min(n, most); ++own) {
          const double seconds = sums[from][At(n - own)] + menu[At(own)] + hops;
          if (seconds >= least) continue;
          least = seconds;
          sources[to][At(n)] = {own, from};
        }
      }
    }
  }

  // Two or more machines between the ends: a way enters and leaves each of them
  // once, so half of its shortest ways in and out are its own.
  void More(size_t first, size_t last) {
    Levels sums;
    sums.fill(Menu(At(layers_) + 1, kNever));
    sums[0] = menus_[first].first;
    std::vector<Sources> sources(machines_.size());
    for (size_t i = 0; i < machines_.size(); ++i) {
      if (i == first || i == last) continue;
      Add(menus_[i].middle, (in_[i] + out_[i]) / 2, sums, sources[i]);
    }
    const auto& [seconds, own] = End(sums[kLevels - 1], last);
    const double all = seconds + (out_[first] + in_[last]) / 2 +
                       costs_.Back(machines_[last], machines_[first]);
    if (all >= best_.seconds) return;
    best_ = {all, {machines_[last]}};
    int32_t left = layers_ - own;
    size_t level = kLevels - 1;
    for (size_t i = machines_.size(); i > 0; --i) {
      if (i - 1 == first || i - 1 == last) continue;
      const Source& source = sources[i - 1][level][At(left)];
      if (source.layers > 0) best_.order.push_back(machines_[i - 1]);
      left -= source.layers;
      level = source.level;
    }
    best_.order.push_back(machines_[first]);
    std::reverse(best_.order.begin(), best_.order.end());
  }

  // As if the first and the last machine were there once more, with the
  // shortest ways of all.
  void Unpaired() {
    Menu first(At(layers_) + 1, kNever);
    double back = kNever;
    for (size_t i = 0; i < machines_.size(); ++i) {
      for (size_t n = 1; n < first.size(); ++n) {
        first[n] = std::min(first[n], menus_[i].first[n] + out_[i] / 2);
      }
      back = std::min(back, Shortest(machines_[i], [&](int32_t other) {
                        return costs_.Back(machines_[i], other);
                      }));
    }
    Levels sums;
    sums.fill(Menu(At(layers_) + 1, kNever));
    sums[0] = first;
    std::vector<Sources> sources(machines_.size());
    for (size_t i = 0; i < machines_.size(); ++i) {
      Add(menus_[i].middle, (in_[i] + out_[i]) / 2, sums, sources[i]);
    }
    for (size_t last = 0; last < machines_.size(); ++last) {
      for (size_t level = 0; level < kLevels; ++level) {
        const auto& [seconds, own] = End(sums[level], last);
        const double all = seconds + in_[last] / 2 + back;
        if (all >= best_.seconds) continue;
        best_ = {all, Used(sources, level, layers_ - own, last)};
      }
    }
  }

  // The machines between the ends that a sum is of, and the last one.
  std::vector<int32_t> Used(const std::vector<Sources>& sources, size_t level,
                            int32_t left, size_t last) const {
    std::vector<int32_t> order;
    for (size_t i = machines_.size(); i > 0; --i) {
      const Source& source = sources[i - 1][level][At(left)];
      if (source.layers > 0 && i - 1 != last) order.push_back(machines_[i - 1]);
      left -= source.layers;
      level = source.level;
    }
    order.push_back(machines_[last]);
    return order;
  }

  const SplitCosts& costs_;
  const int32_t layers_;
  const double most_turn_;
  std::vector<int32_t> machines_;
  std::vector<Menus> menus_;      // per machine that is not barred
  std::vector<double> in_, out_;  // its shortest hops
  std::vector<Menu> pairs_;       // of a first machine and one behind it
  SplitBound best_;
};

// Turns above `low`, up to `high`, whose passes take at least `pass`.
struct BoundInterval {
  double bound = 0;
  double low = 0, high = 0;
  SplitBound pass;
  bool operator<(const BoundInterval& other) const {
    return bound > other.bound;
  }
};

double LongestTurn(const SplitCosts& costs) {
  double longest = 0;
  for (const KindCosts& kind : costs.kinds) {
    for (int32_t first = 0; first < costs.layers; ++first) {
      for (int32_t last = first + 1; last <= costs.layers; ++last) {
        const double turn = kind.turn.At(first, last);
        if (turn < kNever) longest = std::max(longest, turn);
      }
    }
  }
  return longest + *std::ranges::max_element(costs.gateway_turn);
}

}  // namespace

SplitBound BoundOf(const SplitProblem& problem) {
  const SplitGoal& goal = problem.goal;
  std::priority_queue<BoundInterval> open;
  const auto push = [&](double low, double high, SplitBound pass) {
    if (pass.seconds == kNever) return;
    const double bound = goal.Seconds(pass.seconds, low);
    open.push({bound, low, high, std::move(pass)});
  };
  const double longest = LongestTurn(problem.costs);
  push(0, longest, Relaxation(problem, longest).Solve());
  for (int32_t i = 0; !open.empty(); ++i) {
    const BoundInterval least = open.top();
    const double above = goal.Seconds(least.pass.seconds, least.high);
    if (i == kMostHalvings || above <= least.bound * kNear) {
      return {least.bound, least.pass.order};
    }
    open.pop();
    const double middle = (least.low + least.high) / 2;
    push(least.low, middle, Relaxation(problem, middle).Solve());
    push(middle, least.high, least.pass);
  }
  return {};
}

}  // namespace sluice::placement
