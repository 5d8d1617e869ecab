#include "common/placement/order_search.h"

#include <algorithm>

namespace sluice::placement {
namespace {

// Whether two machines may change places in any split.
bool AreTwins(const SplitCosts& costs, int32_t a, int32_t b) {
  if (costs.kind_of[At(a)] != costs.kind_of[At(b)]) return false;
  if (costs.gateway_pass[At(a)] != costs.gateway_pass[At(b)]) return false;
  if (costs.gateway_turn[At(a)] != costs.gateway_turn[At(b)]) return false;
  for (int32_t i = 0; i < costs.num_machines(); ++i) {
    if (i == a || i == b) continue;
    if (costs.Hop(a, i) != costs.Hop(b, i) ||
        costs.Hop(i, a) != costs.Hop(i, b) ||
        costs.Back(a, i) != costs.Back(b, i) ||
        costs.Back(i, a) != costs.Back(i, b)) {
      return false;
    }
  }
  return costs.Hop(a, b) == costs.Hop(b, a) &&
         costs.Back(a, b) == costs.Back(b, a) &&
         costs.Back(a, a) == costs.Back(b, b);
}

}  // namespace

std::vector<int32_t> TwinsOf(const SplitProblem& problem) {
  std::vector<int32_t> twins(At(problem.costs.num_machines()), -1);
  const SplitRules& rules = problem.rules;
  const auto is_special = [&rules](int32_t machine) {
    return machine == rules.needed || machine == rules.last ||
           (!rules.barred.empty() && rules.barred[At(machine)]);
  };
  for (int32_t i = 0; i < problem.costs.num_machines(); ++i) {
    for (int32_t before = i - 1; before >= 0 && twins[At(i)] < 0; --before) {
      if (is_special(i) || is_special(before)) continue;
      if (AreTwins(problem.costs, before, i)) twins[At(i)] = before;
    }
  }
  return twins;
}

OrderSearch::OrderSearch(const SplitProblem& problem)
    : problem_(problem),
      layers_(problem.costs.layers),
      rest_(At(layers_) + 1),
      twins_(TwinsOf(problem)),
      rows_(At(problem.costs.num_machines()) + 1),
      used_(At(problem.costs.num_machines())) {
  for (Row& row : rows_) {
    row.seconds.assign(At(layers_) + 1, kNever);
    row.from.assign(At(layers_) + 1, 0);
  }
}

TimedSplit OrderSearch::Best(double most_turn, double below) {
  Begin(most_turn, below);
  Visit();
  return best_;
}

TimedSplit OrderSearch::BestOf(std::span<const int32_t> order, double most_turn,
                               double below) {
  Begin(most_turn, below);
  for (const int32_t machine : order) {
    if (!Extend(machine)) return best_;
  }
  Take();
  return best_;
}

void OrderSearch::Begin(double most_turn, double below) {
  most_turn_ = most_turn;
  if (rest_turn_ != most_turn) FillRest();
  rest_turn_ = most_turn;
  best_ = {};
  best_.pass = below;
  order_.clear();
  std::fill(used_.begin(), used_.end(), false);
  rows_[0].low = rows_[0].high = 0;
  rows_[0].seconds[0] = 0;
}

void OrderSearch::FillRest() {
  const SplitCosts& costs = problem_.costs;
  rest_[At(layers_)] = 0;
  for (int32_t first = layers_ - 1; first >= 0; --first) {
    double least = kNever;
    for (const KindCosts& kind : costs.kinds) {
      for (int32_t last = first + 1; last <= layers_; ++last) {
        if (kind.turn.At(first, last) > most_turn_) continue;
        least = std::min(least, kind.pass.At(first, last) + rest_[At(last)]);
      }
    }
    rest_[At(first)] = least;
  }
}

bool OrderSearch::Extend(int32_t machine) {
  const SplitCosts& costs = problem_.costs;
  const KindCosts& kind = costs.Of(machine);
  const bool is_first = order_.empty();
  const double before = is_first ? costs.gateway_pass[At(machine)]
                                 : costs.Hop(order_.back(), machine);
  const double turn = is_first ? costs.gateway_turn[At(machine)] : 0;
  const Row& from = rows_[order_.size()];
  Row& to = rows_[order_.size() + 1];
  std::fill(to.seconds.begin(), to.seconds.end(), kNever);
  to.low = layers_ + 1;
  to.high = -1;
  for (int32_t first = from.low; first <= from.high; ++first) {
    const double start = from.seconds[At(first)] + before;
    if (start + rest_[At(first)] >= best_.pass) continue;
    for (int32_t last = first + 1; last <= layers_; ++last) {
      const double seconds = start + kind.pass.At(first, last);
      if (seconds >= to.seconds[At(last)]) continue;
      if (seconds + rest_[At(last)] >= best_.pass) continue;
      if (kind.turn.At(first, last) + turn > most_turn_) continue;
      to.seconds[At(last)] = seconds;
      to.from[At(last)] = first;
      to.low = std::min(to.low, last);
      to.high = std::max(to.high, last);
    }
  }
  order_.push_back(machine);
  used_[At(machine)] = true;
  return to.high >= 0;
}

void OrderSearch::Take() {
  const SplitCosts& costs = problem_.costs;
  const double pass = rows_[order_.size()].seconds[At(layers_)] +
                      costs.Back(order_.back(), order_.front());
  if (!(pass < best_.pass)) return;
  best_.pass = pass;
  best_.turn = 0;
  best_.parts.clear();
  int32_t last = layers_;
  for (size_t i = order_.size(); i > 0; --i) {
    const int32_t machine = order_[i - 1];
    const int32_t first = rows_[i].from[At(last)];
    const double turn = costs.Of(machine).turn.At(first, last) +
                        (i == 1 ? costs.gateway_turn[At(machine)] : 0);
    best_.turn = std::max(best_.turn, turn);
    best_.parts.push_back({machine, {first, last}});
    last = first;
  }
  std::reverse(best_.parts.begin(), best_.parts.end());
}

bool OrderSearch::MayFollow(int32_t machine) const {
  const SplitRules& rules = problem_.rules;
  if (used_[At(machine)]) return false;
  if (!rules.barred.empty() && rules.barred[At(machine)]) return false;
  if (rules.in_order && !order_.empty() && machine < order_.back()) {
    return false;
  }
  // Of equal machines the earlier one comes first.
  const int32_t twin = twins_[At(machine)];
  return twin < 0 || used_[At(twin)];
}

void OrderSearch::Visit() {
  const SplitRules& rules = problem_.rules;
  const auto length = static_cast<int32_t>(order_.size());
  if (length > 0 && length >= rules.least &&
      (rules.needed < 0 || used_[At(rules.needed)]) &&
      (rules.last < 0 || order_.back() == rules.last)) {
    Take();
  }
  if (length >= std::min(rules.most, problem_.costs.num_machines())) return;
  // Nothing comes behind the machine with the head.
  if (length > 0 && order_.back() == rules.last) return;
  for (int32_t i = 0; i < problem_.costs.num_machines(); ++i) {
    if (!MayFollow(i)) continue;
    if (Extend(i)) Visit();
    order_.pop_back();
    used_[At(i)] = false;
  }
}

}  // namespace sluice::placement
