#ifndef SLUICE_COMMON_PLACEMENT_SPLIT_COSTS_H_
#define SLUICE_COMMON_PLACEMENT_SPLIT_COSTS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/model_config/layer_range.h"

namespace sluice::placement {

// Machines and layers are counted as int32_t, containers by size_t.
inline size_t At(int32_t index) { return static_cast<size_t>(index); }

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// A number per range [first, last) of layers. A value.
class RangeTable {
 public:
  RangeTable() = default;
  explicit RangeTable(int32_t layers)
      : side_(static_cast<size_t>(layers) + 1), at_(side_ * side_, kNever) {}
  double& At(int32_t first, int32_t last) {
    return at_[static_cast<size_t>(first) * side_ + static_cast<size_t>(last)];
  }
  double At(int32_t first, int32_t last) const {
    return at_[static_cast<size_t>(first) * side_ + static_cast<size_t>(last)];
  }

 private:
  size_t side_ = 0;
  std::vector<double> at_;
};

// What machines of a kind take for every range of layers; kNever where the
// range does not fit their memory, or may not be cut out. A range that fits
// behind an earlier first layer fits behind a later one, too.
struct KindCosts {
  RangeTable pass;  // seconds of a pass through the stage
  RangeTable turn;  // seconds before the stage takes the pass behind it
  // The part that the keys and values asked for take of the memory that is left
  // for them.
  RangeTable crowding;
};

// What a split of a model's layers over machines costs. A value.
struct SplitCosts {
  int32_t layers = 0;
  std::vector<KindCosts> kinds;
  std::vector<int32_t> kind_of;  // per machine: into `kinds`
  // Per machine: what it takes more as the first one, beside the gateway.
  std::vector<double> gateway_pass, gateway_turn;
  // [from * machines + to]: hidden states from stage to stage.
  std::vector<double> hop;
  // [last * machines + first]: the plan to the first stage, and the result from
  // the last one.
  std::vector<double> back;

  int32_t num_machines() const { return static_cast<int32_t>(kind_of.size()); }
  const KindCosts& Of(int32_t machine) const {
    return kinds[static_cast<size_t>(kind_of[static_cast<size_t>(machine)])];
  }
  double Hop(int32_t from, int32_t to) const { return hop[Pair(from, to)]; }
  double Back(int32_t last, int32_t first) const {
    return back[Pair(last, first)];
  }
  size_t Pair(int32_t a, int32_t b) const {
    return static_cast<size_t>(a) * kind_of.size() + static_cast<size_t>(b);
  }
};

// What is made small, of a split with a pass of `pass` seconds whose longest
// turn is `turn`.
struct SplitGoal {
  // The turns that fill a pass: groups of streams. A step takes the larger of
  // the pass and `groups` times the turn.
  double groups = 1;
  // Else the turn is that of all passes behind the first one, and is added.
  bool adds_turn = false;
  double Seconds(double pass, double turn) const {
    return adds_turn ? pass + turn : std::max(pass, groups * turn);
  }
};

// Which splits are asked for.
struct SplitRules {
  int32_t least = 1;  // machines with layers
  int32_t most = std::numeric_limits<int32_t>::max();
  std::vector<bool> barred;  // machines without layers; empty: none is barred
  int32_t needed = -1;       // a machine that has to have layers
  int32_t last = -1;         // the machine that has to have the head
  bool in_order = false;     // machines by their index
};

struct SplitProblem {
  SplitCosts costs;
  SplitGoal goal;
  SplitRules rules;
};

// The layers of a machine.
struct SplitPart {
  int32_t machine = 0;
  LayerRange range;
  bool operator==(const SplitPart&) const = default;
};

// A split, in the order of the layers.
struct TimedSplit {
  std::vector<SplitPart> parts;
  double pass = kNever;
  double turn = kNever;
};

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_SPLIT_COSTS_H_
