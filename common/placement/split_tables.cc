#include "common/placement/split_tables.h"

#include <algorithm>
#include <array>

namespace sluice::placement {
namespace {

// Sums over layers, from the memory and from the cache.
struct Sums {
  std::array<std::vector<double>, 2> before;  // the layers before each
  std::array<double, 2> head{};
  bool operator==(const Sums&) const = default;

  double Of(const LayerRange& range, bool cached) const {
    const auto& sums = before[cached ? 1 : 0];
    const double layers = sums[At(range.last)] - sums[At(range.first)];
    const bool is_last = At(range.last) + 1 == sums.size();
    return layers + (is_last ? head[cached ? 1 : 0] : 0);
  }
};

Sums SumsOf(const ClusterTimes& times, int32_t machine, int32_t layers,
            std::span<const StepShape> steps) {
  Sums sums;
  for (const bool cached : {false, true}) {
    std::vector<double>& before = sums.before[cached ? 1 : 0];
    before.push_back(0);
    for (int32_t i = 0; i < layers; ++i) {
      double seconds = 0;
      for (const StepShape& step : steps) {
        seconds += times.LayerSeconds(machine, i, step, cached);
      }
      before.push_back(before.back() + seconds);
    }
    for (const StepShape& step : steps) {
      sums.head[cached ? 1 : 0] += times.HeadSeconds(machine, step, cached);
    }
  }
  return sums;
}

// What tells a kind of machines from another one.
struct Kind {
  Sums pass, turn;
  uint64_t memory = 0;  // of a stage
  double cache_bytes = 0;
  int32_t stages = 1;
  double between = 0;  // from stage to stage on the machine
  bool operator==(const Kind&) const = default;
};

KindCosts CostsOf(const Kind& kind, const StageMemoryNeeds& needs) {
  const int32_t layers = needs.loads().num_layers();
  KindCosts costs{RangeTable(layers), RangeTable(layers), RangeTable(layers)};
  double pass = 0;
  double turn = 0;
  double crowding = 0;
  const auto add = [&](const LayerRange& part) {
    const bool cached =
        static_cast<double>(needs.Weights(part)) < kind.cache_bytes;
    pass += kind.pass.Of(part, cached);
    turn += kind.turn.Of(part, cached);
    crowding = std::max(crowding, needs.Crowding(part, kind.memory));
  };
  for (int32_t first = 0; first < layers; ++first) {
    if (first > 0 && !needs.MayBegin(first)) continue;
    for (int32_t last = first + kind.stages; last <= layers; ++last) {
      const LayerRange range = {first, last};
      if (last < layers && !needs.MayBegin(last)) continue;
      if (!needs.Fit(range, kind.stages, kind.memory)) continue;
      pass = (kind.stages - 1) * kind.between;
      turn = crowding = 0;
      if (kind.stages == 1) {
        add(range);
      } else {
        for (const LayerRange& part : needs.Cut(range, kind.stages)) {
          add(part);
        }
      }
      costs.pass.At(first, last) = pass;
      costs.turn.At(first, last) = turn;
      costs.crowding.At(first, last) = crowding;
    }
  }
  return costs;
}

void AddKinds(const ClusterTimes& times, const StageMemoryNeeds& needs,
              const LayerMachines& machines, const StepShape& pass,
              std::span<const StepShape> turns, SplitCosts& costs) {
  std::vector<Kind> kinds;
  for (size_t i = 0; i < machines.on.size(); ++i) {
    const int32_t index = machines.on[i];
    const Machine& machine = (*machines.machines)[At(index)];
    Kind kind;
    kind.pass = SumsOf(times, index, costs.layers, {&pass, 1});
    kind.turn = SumsOf(times, index, costs.layers, turns);
    kind.stages = machines.stages[i];
    kind.memory =
        UsableBytes(machine.memory) / static_cast<uint64_t>(kind.stages);
    kind.cache_bytes = machine.rates.cache_bytes;
    kind.between =
        times.HopSeconds(static_cast<double>(pass.rows()), index, index);
    const auto found = std::ranges::find(kinds, kind);
    costs.kind_of.push_back(static_cast<int32_t>(found - kinds.begin()));
    if (found != kinds.end()) continue;
    costs.kinds.push_back(CostsOf(kind, needs));
    kinds.push_back(std::move(kind));
  }
}

}  // namespace

SplitCosts SplitCostsOf(const ClusterTimes& times,
                        const StageMemoryNeeds& needs,
                        const LayerMachines& machines, const StepShape& pass,
                        std::span<const StepShape> turns) {
  SplitCosts costs;
  costs.layers = needs.loads().num_layers();
  AddKinds(times, needs, machines, pass, turns, costs);
  const auto rows = static_cast<double>(pass.rows());
  for (const int32_t from : machines.on) {
    costs.gateway_pass.push_back(times.GatewaySeconds(from, pass.sequences));
    double turn = 0;
    for (const StepShape& step : turns) {
      turn += times.GatewaySeconds(from, step.sequences);
    }
    costs.gateway_turn.push_back(turn);
    for (const int32_t to : machines.on) {
      costs.hop.push_back(times.HopSeconds(rows, from, to));
      costs.back.push_back(times.HopSeconds(0, from, to) +
                           times.HopSeconds(0, to, to));
    }
  }
  return costs;
}

}  // namespace sluice::placement
