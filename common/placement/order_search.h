#ifndef SLUICE_COMMON_PLACEMENT_ORDER_SEARCH_H_
#define SLUICE_COMMON_PLACEMENT_ORDER_SEARCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/placement/split_costs.h"

namespace sluice::placement {

// Returns for each machine an equal one before it, which may change places with
// it in any split; -1: there is none.
std::vector<int32_t> TwinsOf(const SplitProblem& problem);

// Finds the fastest split, in all orders of all machines that the rules allow,
// or in one order. A row has the least seconds of the first layers per number
// of layers; a machine behind an order makes the next row. Orders that begin
// alike share their rows, and those that cannot beat what is asked for are
// left. One thread at a time; the problem outlives it.
class OrderSearch {
 public:
  explicit OrderSearch(const SplitProblem& problem);

  // Returns the split with the shortest pass among those whose turns take at
  // most `most_turn`; without parts unless its pass is below `below`. Takes
  // time that grows as the factorial of the machines.
  TimedSplit Best(double most_turn, double below);
  // The same of the machines of `order`, each with layers.
  TimedSplit BestOf(std::span<const int32_t> order, double most_turn,
                    double below);

 private:
  struct Row {
    std::vector<double> seconds;  // per number of layers before
    std::vector<int32_t> from;    // where the last machine's layers begin
    int32_t low = 0, high = -1;   // the numbers that are possible
  };

  void Begin(double most_turn, double below);
  // Puts `machine` behind the order; returns whether a split may come of it.
  bool Extend(int32_t machine);
  void Take();  // keeps the split that ends with the last machine
  void Visit();
  bool MayFollow(int32_t machine) const;
  // The least seconds of the layers from each on, on any machines.
  void FillRest();

  const SplitProblem& problem_;
  const int32_t layers_;
  std::vector<double> rest_;
  std::vector<int32_t> twins_;  // per machine: an equal one before it, or -1
  std::vector<Row> rows_;       // one more than the order
  std::vector<int32_t> order_;
  std::vector<bool> used_;
  double most_turn_ = kNever;
  double rest_turn_ = -1;  // what rest_ was filled for
  TimedSplit best_;
};

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_ORDER_SEARCH_H_
