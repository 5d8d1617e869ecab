#include "common/placement/plan_choices.h"

#include <algorithm>
#include <vector>

namespace sluice::placement {
namespace {

using What = PlanChoice::What;

// The machines of a split, by their place in layer_machines().
std::vector<int32_t> OrderOf(const TimedSplit& split) {
  std::vector<int32_t> order;
  for (const SplitPart& part : split.parts) order.push_back(part.machine);
  return order;
}

class Chooser {
 public:
  Chooser(const FleetPlanner& planner, const PlacedByTime& placed,
          ClusterPlan& plan)
      : planner_(planner),
        machines_(static_cast<int32_t>(planner.layer_machines().size())),
        is_small_(machines_ <= kMostExactMachines),
        order_(OrderOf(placed.split)),
        plan_(plan) {}

  void Run() {
    if (machines_ == 1) return;
    for (int32_t i = 0; i < machines_; ++i) {
      const bool is_used = std::ranges::count(order_, i) > 0;
      // Not without a machine of all that the request asks for.
      if (is_used && planner_.least_machines() == machines_) continue;
      Add(is_used ? What::kWithout : What::kWith, i,
          is_used ? Without(i) : With(i));
    }
    for (const int32_t i : order_) {
      if (i != order_.back()) Add(What::kHead, i, Head(i));
    }
    if (!std::ranges::is_sorted(order_)) {
      Add(What::kInOrder, -1, InOrder());
    }
    Add(What::kByMemory, -1, planner_.SecondsByMemory());
  }

 private:
  using Order = std::vector<int32_t>;

  void Add(What what, int32_t machine, double seconds) {
    const int32_t index =
        machine < 0 ? -1
                    : planner_.layer_machines()[static_cast<size_t>(machine)];
    plan_.choices.push_back({what, index, seconds});
  }

  double Without(int32_t machine) const {
    if (is_small_) {
      SplitRules rules;
      rules.barred.assign(static_cast<size_t>(machines_), false);
      rules.barred[static_cast<size_t>(machine)] = true;
      return planner_.Solve(rules).seconds;
    }
    Order order = order_;
    std::erase(order, machine);
    return order.empty() ? kNever : planner_.SecondsInOrder(order);
  }

  double With(int32_t machine) const {
    if (is_small_) {
      SplitRules rules;
      rules.needed = machine;
      return planner_.Solve(rules).seconds;
    }
    double least = kNever;
    for (size_t at = 0; at <= order_.size(); ++at) {
      Order order = order_;
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), machine);
      least = std::min(least, planner_.SecondsInOrder(order));
    }
    return least;
  }

  double Head(int32_t machine) const {
    if (is_small_) {
      SplitRules rules;
      rules.last = machine;
      return planner_.Solve(rules).seconds;
    }
    Order order = order_;
    std::erase(order, machine);
    order.push_back(machine);
    return planner_.SecondsInOrder(order);
  }

  double InOrder() const {
    if (is_small_) {
      SplitRules rules;
      rules.in_order = true;
      return planner_.Solve(rules).seconds;
    }
    Order order = order_;
    std::ranges::sort(order);
    return planner_.SecondsInOrder(order);
  }

  const FleetPlanner& planner_;
  const int32_t machines_;
  const bool is_small_;
  const Order order_;
  ClusterPlan& plan_;
};

}  // namespace

void AddChoices(const FleetPlanner& planner, const PlacedByTime& placed,
                ClusterPlan& plan) {
  Chooser(planner, placed, plan).Run();
}

}  // namespace sluice::placement
