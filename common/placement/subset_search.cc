#include "common/placement/subset_search.h"

#include <algorithm>
#include <bit>

#include "common/placement/order_search.h"

namespace sluice::placement {

SubsetSearch::SubsetSearch(const SplitProblem& problem, int64_t most_work)
    : problem_(problem),
      layers_(problem.costs.layers),
      machines_(problem.costs.num_machines()),
      most_work_(most_work),
      twins_(TwinsOf(problem)),
      rows_((size_t{1} << machines_) * static_cast<size_t>(machines_)),
      rest_(static_cast<size_t>(layers_) + 1) {
  least_back_ = *std::ranges::min_element(problem.costs.back);
}

TimedSplit SubsetSearch::Best(double most_turn, double below) {
  most_turn_ = most_turn;
  best_ = {};
  best_.pass = below;
  FillRest();
  for (int32_t first = 0; first < machines_ && !is_over(); ++first) {
    if (MayFollow(0, -1, first)) From(first);
  }
  return best_;
}

void SubsetSearch::FillRest() {
  const SplitCosts& costs = problem_.costs;
  const double hop = *std::ranges::min_element(costs.hop);
  rest_.back() = 0;
  for (int32_t first = layers_ - 1; first >= 0; --first) {
    double least = kNever;
    for (const KindCosts& kind : costs.kinds) {
      for (int32_t last = first + 1; last <= layers_; ++last) {
        if (kind.turn.At(first, last) > most_turn_) continue;
        least = std::min(least, kind.pass.At(first, last) +
                                    rest_[static_cast<size_t>(last)]);
      }
    }
    rest_[static_cast<size_t>(first)] = least + (first > 0 ? hop : 0);
  }
}

bool SubsetSearch::MayFollow(uint32_t set, int32_t last,
                             int32_t machine) const {
  const SplitRules& rules = problem_.rules;
  const auto at = static_cast<size_t>(machine);
  if ((set >> machine & 1U) != 0) return false;
  if (!rules.barred.empty() && rules.barred[at]) return false;
  if (rules.in_order && machine < last) return false;
  // Nothing comes behind the machine with the head.
  if (last >= 0 && last == rules.last) return false;
  return twins_[at] < 0 || (set >> twins_[at] & 1U) != 0;
}

void SubsetSearch::From(int32_t first) {
  for (Row& row : rows_) row.seconds.clear();
  Row start;
  start.seconds.assign(static_cast<size_t>(layers_) + 1, kNever);
  start.seconds[0] = 0;
  const uint32_t one = uint32_t{1} << first;
  Extend(start, -1, one, first);
  // A set comes behind all of its parts.
  for (uint32_t set = one; set < uint32_t{1} << machines_; ++set) {
    if ((set & one) == 0) continue;
    for (int32_t last = 0; last < machines_; ++last) {
      if (!At(set, last).seconds.empty()) Visit(set, first, last);
      if (is_over()) return;
    }
  }
}

void SubsetSearch::Visit(uint32_t set, int32_t first, int32_t last) {
  const SplitRules& rules = problem_.rules;
  const int32_t count = std::popcount(set);
  if (count >= rules.least &&
      (rules.needed < 0 || (set >> rules.needed & 1U) != 0) &&
      (rules.last < 0 || last == rules.last)) {
    Take(set, first, last);
  }
  if (count >= rules.most) return;
  for (int32_t machine = 0; machine < machines_; ++machine) {
    if (!MayFollow(set, last, machine)) continue;
    Extend(At(set, last), last, set | uint32_t{1} << machine, machine);
  }
}

void SubsetSearch::Extend(const Row& row, int32_t before, uint32_t set,
                          int32_t machine) {
  const SplitCosts& costs = problem_.costs;
  const KindCosts& kind = costs.Of(machine);
  const bool is_first = before < 0;
  const auto at = static_cast<size_t>(machine);
  const double way =
      is_first ? costs.gateway_pass[at] : costs.Hop(before, machine);
  const double turn = is_first ? costs.gateway_turn[at] : 0;
  Row& to = At(set, machine);
  for (int32_t first = 0; first < layers_; ++first) {
    const double start = row.seconds[static_cast<size_t>(first)] + way;
    if (start + least_back_ >= best_.pass) continue;
    for (int32_t last = first + 1; last <= layers_; ++last) {
      const double seconds = start + kind.pass.At(first, last);
      ++work_;
      if (seconds == kNever) continue;
      const auto end = static_cast<size_t>(last);
      if (seconds + rest_[end] + least_back_ >= best_.pass) continue;
      if (kind.turn.At(first, last) + turn > most_turn_) continue;
      if (to.seconds.empty()) {
        to.seconds.assign(static_cast<size_t>(layers_) + 1, kNever);
        to.from.assign(to.seconds.size(), 0);
        to.before.assign(to.seconds.size(), -1);
      }
      if (seconds >= to.seconds[end]) continue;
      to.seconds[end] = seconds;
      to.from[end] = static_cast<int16_t>(first);
      to.before[end] = static_cast<int8_t>(before);
    }
  }
}

void SubsetSearch::Take(uint32_t set, int32_t first, int32_t last) {
  const SplitCosts& costs = problem_.costs;
  const double pass = At(set, last).seconds[static_cast<size_t>(layers_)] +
                      costs.Back(last, first);
  if (!(pass < best_.pass)) return;
  best_ = {};
  best_.pass = pass;
  best_.turn = 0;
  for (int32_t end = layers_, machine = last; machine >= 0;) {
    const Row& row = At(set, machine);
    const int32_t begin = row.from[static_cast<size_t>(end)];
    const double turn =
        costs.Of(machine).turn.At(begin, end) +
        (begin == 0 ? costs.gateway_turn[static_cast<size_t>(machine)] : 0);
    best_.turn = std::max(best_.turn, turn);
    best_.parts.push_back({machine, {begin, end}});
    set &= ~(uint32_t{1} << machine);
    machine = row.before[static_cast<size_t>(end)];
    end = begin;
  }
  std::reverse(best_.parts.begin(), best_.parts.end());
}

}  // namespace sluice::placement
