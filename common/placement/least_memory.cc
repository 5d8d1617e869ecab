#include "common/placement/least_memory.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace sluice::placement {
namespace {

constexpr size_t kMostOrders = 12;  // machines in any order
constexpr double kMostFactor = 1 << 20;

class Reach {
 public:
  Reach(const StageMemoryNeeds& needs, const LayerMachines& machines,
        double factor)
      : needs_(needs), machines_(machines), factor_(factor) {}

  bool HoldsAll() const {
    return machines_.on.size() <= kMostOrders ? InAnyOrder() : ByMemory();
  }

 private:
  // Returns the layers before which a machine holds all from `first` on.
  int32_t End(size_t machine, int32_t first) const {
    const int32_t layers = needs_.loads().num_layers();
    const uint64_t memory =
        (*machines_.machines)[static_cast<size_t>(machines_.on[machine])]
            .memory;
    const int32_t stages = machines_.stages[machine];
    const uint64_t each = UsableBytes(static_cast<uint64_t>(
                              static_cast<double>(memory) * factor_)) /
                          static_cast<uint64_t>(stages);
    for (int32_t last = layers; last > first; --last) {
      if (last < layers && !needs_.MayBegin(last)) continue;
      if (needs_.Fit({first, last}, stages, each)) return last;
    }
    return first;
  }

  // The layers that each set of machines holds at most.
  bool InAnyOrder() const {
    const size_t count = machines_.on.size();
    std::vector<int32_t> most(size_t{1} << count);
    for (size_t set = 0; set < most.size(); ++set) {
      if (most[set] == needs_.loads().num_layers()) return true;
      for (size_t i = 0; i < count; ++i) {
        const size_t with = set | size_t{1} << i;
        if (with == set) continue;
        most[with] = std::max(most[with], End(i, most[set]));
      }
    }
    return most.back() == needs_.loads().num_layers();
  }

  bool ByMemory() const {
    std::vector<size_t> order(machines_.on.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [this](size_t i) {
      return (*machines_.machines)[static_cast<size_t>(machines_.on[i])].memory;
    });
    int32_t end = 0;
    for (const size_t i : order) {
      if (end < needs_.loads().num_layers()) end = End(i, end);
    }
    return end == needs_.loads().num_layers();
  }

  const StageMemoryNeeds& needs_;
  const LayerMachines& machines_;
  const double factor_;
};

}  // namespace

LeastMemory LeastMemoryFor(const StageMemoryNeeds& needs,
                           const LayerMachines& machines) {
  LeastMemory least;
  const auto holds = [&](double factor) {
    return Reach(needs, machines, factor).HoldsAll();
  };
  double high = 1;
  while (high < kMostFactor && !holds(high)) high *= 2;
  double low = high / 2;
  while (high - low > 5e-4 * high) {
    const double middle = (low + high) / 2;
    (holds(middle) ? high : low) = middle;
  }
  least.factor = std::ceil(high * 1e3) / 1e3;
  for (const int32_t index : machines.on) {
    const uint64_t memory =
        (*machines.machines)[static_cast<size_t>(index)].memory;
    least.given += UsableBytes(memory);
    least.memory.push_back(static_cast<uint64_t>(
        std::ceil(static_cast<double>(memory) * least.factor)));
  }
  return least;
}

}  // namespace sluice::placement
