#include "common/placement/place_by_time.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "common/placement/order_search.h"
#include "common/placement/split_bound.h"
#include "common/placement/subset_search.h"

namespace sluice::placement {
namespace {

// Splits whose seconds differ by less are equal.
constexpr double kSame = 1e-9;
// Halvings of the crowding of equal splits.
constexpr int32_t kCrowdingHalvings = 20;
// Of a search by moves: ranges that are added to rows.
constexpr int64_t kMostWork = 150'000'000;
// Of a search by sets, likewise.
constexpr int64_t kMostSetWork = 600'000'000;
// Machines of which every choice is tried, in the order that they have.
constexpr int32_t kMostOrdered = 12;

// Turns above `low`, up to `high`, whose passes take at least `pass`.
struct Interval {
  double bound = 0;
  double pass = 0, low = 0, high = kNever;
  bool operator<(const Interval& other) const { return bound > other.bound; }
};

// Finds the least seconds by a search for the shortest pass among splits with
// turns up to a limit: what it finds rules out all splits with longer turns.
// `best` is what has to be beaten, by the part `near`, and what is found.
void LeastSeconds(
    const SplitGoal& goal,
    const std::function<TimedSplit(double most_turn, double below)>& search,
    PlacedByTime& best, double near = kSame) {
  std::priority_queue<Interval> open;
  open.push({});
  while (!open.empty()) {
    const Interval interval = open.top();
    open.pop();
    const double beaten = best.seconds * (1 - near);
    if (interval.bound >= beaten) return;
    const double below = beaten - (goal.adds_turn ? interval.low : 0);
    TimedSplit found = search(interval.high, below);
    if (found.parts.empty()) continue;
    const double pass = found.pass;
    const double turn = found.turn;
    const double seconds = goal.Seconds(pass, turn);
    if (seconds < best.seconds) {
      best.split = std::move(found);
      best.seconds = seconds;
    }
    const auto push = [&](double low, double high) {
      if (low < high) open.push({goal.Seconds(pass, low), pass, low, high});
    };
    const double middle = (interval.low + turn) / 2;
    push(interval.low, std::min(middle, std::nextafter(turn, 0)));
    push(middle, std::nextafter(turn, 0));
  }
}

// Leaves ranges out that are more crowded than `most`.
void Narrow(int32_t layers, double most, KindCosts& kind) {
  for (int32_t first = 0; first < layers; ++first) {
    for (int32_t last = first + 1; last <= layers; ++last) {
      if (kind.crowding.At(first, last) <= most) continue;
      kind.pass.At(first, last) = kind.turn.At(first, last) = kNever;
    }
  }
}

// Looks for faster orders, move by move.
class MoveSearch {
 public:
  // Ends after so many ranges of layers.
  MoveSearch(const SplitProblem& problem, int64_t most_work)
      : problem_(problem),
        machines_(problem.costs.num_machines()),
        most_work_(most_work),
        search_(problem) {}

  // Returns the fastest split that takes less than `below`.
  PlacedByTime Run(std::vector<int32_t> start, double below) {
    best_.seconds = below;
    Begin(std::move(start));
    while (!Done() && Improve()) {
    }
    return best_;
  }

 private:
  using Order = std::vector<int32_t>;

  bool IsBarred(int32_t machine) const {
    const auto& barred = problem_.rules.barred;
    return !barred.empty() && barred[static_cast<size_t>(machine)];
  }

  bool Obeys(const Order& order) const {
    const SplitRules& rules = problem_.rules;
    const auto count = static_cast<int32_t>(order.size());
    if (count < std::max(1, rules.least) || count > rules.most) return false;
    if (count > problem_.costs.layers) return false;
    if (rules.needed >= 0 && std::ranges::count(order, rules.needed) == 0) {
      return false;
    }
    if (rules.last >= 0 && order.back() != rules.last) return false;
    return !rules.in_order || std::ranges::is_sorted(order);
  }

  // Takes `start`, or else the nearest order that obeys the rules, or the first
  // machines that hold the layers.
  void Begin(Order start) {
    const SplitRules& rules = problem_.rules;
    const auto add = [&](int32_t machine) {
      if (std::ranges::count(start, machine) > 0 || IsBarred(machine)) return;
      start.insert(start.end() - (start.empty() ? 0 : 1), machine);
    };
    if (rules.needed >= 0) add(rules.needed);
    for (int32_t i = 0; i < machines_; ++i) {
      if (static_cast<int32_t>(start.size()) < rules.least) add(i);
    }
    while (static_cast<int32_t>(start.size()) > rules.most) {
      const auto drop = std::ranges::find_if(start, [&](int32_t machine) {
        return machine != rules.needed && machine != rules.last;
      });
      if (drop == start.end()) break;
      start.erase(drop);
    }
    if (rules.last >= 0) {
      std::erase(start, rules.last);
      start.push_back(rules.last);
    }
    if (rules.in_order) std::ranges::sort(start);
    if (Try(start)) return;
    order_ = start;
    // More machines, until the layers have room.
    for (int32_t i = 0; i < machines_ && !best_.fits(); ++i) {
      if (std::ranges::count(start, i) > 0) continue;
      add(i);
      if (rules.in_order) std::ranges::sort(start);
      Try(start);
    }
  }

  // Returns whether the order is faster, and keeps it then.
  bool Try(const Order& order) {
    if (!Obeys(order)) return false;
    const double before = best_.seconds;
    LeastSeconds(
        problem_.goal,
        [&](double most_turn, double below) {
          work_ += static_cast<int64_t>(order.size()) * problem_.costs.layers *
                   problem_.costs.layers / 2;
          return search_.BestOf(order, most_turn, below);
        },
        best_);
    if (best_.seconds >= before * (1 - kSame)) return false;
    order_ = order;
    return true;
  }

  bool Improve() {
    return Swaps() || Moves() || Leaves() || Comes() || Replaces();
  }

  bool Done() const { return work_ >= most_work_; }

  bool Swaps() {
    for (size_t a = 0; a < order_.size(); ++a) {
      for (size_t b = a + 1; b < order_.size() && !Done(); ++b) {
        Order order = order_;
        std::swap(order[a], order[b]);
        if (Try(order)) return true;
      }
    }
    return false;
  }

  bool Moves() {
    for (size_t a = 0; a < order_.size(); ++a) {
      for (size_t b = 0; b < order_.size() && !Done(); ++b) {
        if (a == b || a + 1 == b) continue;
        Order order = order_;
        const int32_t machine = order[a];
        order.erase(order.begin() + static_cast<std::ptrdiff_t>(a));
        order.insert(order.begin() + static_cast<std::ptrdiff_t>(b), machine);
        if (Try(order)) return true;
      }
    }
    return false;
  }

  bool Leaves() {
    for (size_t a = 0; a < order_.size() && !Done(); ++a) {
      Order order = order_;
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(a));
      if (Try(order)) return true;
    }
    return false;
  }

  template <class Change>
  bool WithUnused(Change change) {
    for (int32_t machine = 0; machine < machines_; ++machine) {
      if (IsBarred(machine) || std::ranges::count(order_, machine) > 0) {
        continue;
      }
      for (size_t at = 0; at <= order_.size() && !Done(); ++at) {
        Order order = order_;
        if (change(order, at, machine) && Try(order)) return true;
      }
    }
    return false;
  }

  bool Comes() {
    return WithUnused([](Order& order, size_t at, int32_t machine) {
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), machine);
      return true;
    });
  }

  bool Replaces() {
    return WithUnused([](Order& order, size_t at, int32_t machine) {
      if (at == order.size()) return false;
      order[at] = machine;
      return true;
    });
  }

  const SplitProblem& problem_;
  const int32_t machines_;
  const int64_t most_work_;
  OrderSearch search_;
  Order order_;
  PlacedByTime best_;
  int64_t work_ = 0;
};

PlacedByTime PlaceMany(const SplitProblem& problem, double below,
                       double effort) {
  SplitBound bound = BoundOf(problem);
  PlacedByTime placed;
  placed.seconds = below;
  placed.bound = std::min(bound.seconds, below);
  placed.exact = bound.seconds >= below;
  if (placed.exact) return placed;
  const auto work = [effort](int64_t most) {
    return static_cast<int64_t>(static_cast<double>(most) * effort);
  };
  placed =
      MoveSearch(problem, work(kMostWork)).Run(std::move(bound.order), below);
  placed.bound = std::min(bound.seconds, placed.seconds);
  if (problem.costs.num_machines() > SubsetSearch::kMostMachines) return placed;
  SubsetSearch search(problem, work(kMostSetWork));
  LeastSeconds(
      problem.goal,
      [&search](double most_turn, double less) {
        return search.Best(most_turn, less);
      },
      placed, kNearBest);
  placed.bound = std::min(placed.bound, placed.seconds);
  if (!search.is_over()) {
    placed.bound = std::max(placed.bound, placed.seconds * (1 - kNearBest));
  }
  return placed;
}

}  // namespace

PlacedByTime PlaceByTime(const SplitProblem& problem, double below,
                         double effort) {
  const auto& barred = problem.rules.barred;
  const auto left = problem.costs.num_machines() -
                    static_cast<int32_t>(std::ranges::count(barred, true));
  const int32_t most =
      problem.rules.in_order ? kMostOrdered : kMostExactMachines;
  if (left > most) return PlaceMany(problem, below, effort);
  PlacedByTime placed;
  placed.seconds = below;
  OrderSearch search(problem);
  LeastSeconds(
      problem.goal,
      [&search](double most_turn, double less) {
        return search.Best(most_turn, less);
      },
      placed);
  placed.bound = placed.seconds;
  placed.exact = true;
  return placed;
}

PlacedByTime PlaceInOrder(const SplitProblem& problem,
                          std::span<const int32_t> order) {
  PlacedByTime placed;
  OrderSearch search(problem);
  LeastSeconds(
      problem.goal,
      [&](double most_turn, double below) {
        return search.BestOf(order, most_turn, below);
      },
      placed);
  placed.bound = placed.seconds;
  placed.exact = true;
  return placed;
}

PlacedByTime LeastCrowded(const SplitProblem& problem, PlacedByTime placed) {
  const auto crowding = [&problem](const PlacedByTime& one) {
    double most = 0;
    for (const SplitPart& part : one.split.parts) {
      most =
          std::max(most, problem.costs.Of(part.machine)
                             .crowding.At(part.range.first, part.range.last));
    }
    return most;
  };
  std::vector<int32_t> order;
  for (const SplitPart& part : placed.split.parts) {
    order.push_back(part.machine);
  }
  double low = 0;
  double high = crowding(placed);
  for (int32_t i = 0; i < kCrowdingHalvings && low < high; ++i) {
    const double middle = (low + high) / 2;
    SplitProblem narrow = problem;
    for (KindCosts& kind : narrow.costs.kinds) {
      Narrow(problem.costs.layers, middle, kind);
    }
    PlacedByTime found = PlaceInOrder(narrow, order);
    if (!found.fits() || found.seconds > placed.seconds * (1 + kSame)) {
      low = middle;
      continue;
    }
    placed.split = std::move(found.split);
    high = crowding(placed);
  }
  return placed;
}

}  // namespace sluice::placement
