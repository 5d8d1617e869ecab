#ifndef SLUICE_COMMON_PLACEMENT_SUBSET_SEARCH_H_
#define SLUICE_COMMON_PLACEMENT_SUBSET_SEARCH_H_

#include <cstdint>
#include <vector>

#include "common/placement/split_costs.h"

namespace sluice::placement {

// Finds the fastest split in all orders of up to kMostMachines machines. A row
// has the least seconds of the first layers per number of layers, for a first
// machine, a set of machines and the last one of them: orders of one set share
// a row. Entries that cannot beat what is asked for are left. One thread at a
// time; the problem outlives it.
class SubsetSearch {
 public:
  static constexpr int32_t kMostMachines = 12;

  // Gives up after so many ranges of layers.
  SubsetSearch(const SplitProblem& problem, int64_t most_work);

  // As OrderSearch::Best; what it returns after is_over() may not be the best.
  TimedSplit Best(double most_turn, double below);
  bool is_over() const { return work_ > most_work_; }

 private:
  struct Row {
    std::vector<double> seconds;  // per number of layers; empty: none
    std::vector<int16_t> from;    // where the last machine's layers begin
    std::vector<int8_t> before;   // the machine before it
  };

  void FillRest();
  void From(int32_t first);
  void Visit(uint32_t set, int32_t first, int32_t last);
  // Puts layers of `machine` behind those of `row`, whose last machine is
  // `before`; -1: there is no row.
  void Extend(const Row& row, int32_t before, uint32_t set, int32_t machine);
  void Take(uint32_t set, int32_t first, int32_t last);
  bool MayFollow(uint32_t set, int32_t last, int32_t machine) const;
  Row& At(uint32_t set, int32_t last) {
    return rows_[static_cast<size_t>(set) * static_cast<size_t>(machines_) +
                 static_cast<size_t>(last)];
  }

  const SplitProblem& problem_;
  const int32_t layers_;
  const int32_t machines_;
  const int64_t most_work_;
  std::vector<int32_t> twins_;
  std::vector<Row> rows_;
  std::vector<double> rest_;  // of the layers from each on, hops included
  double least_back_ = 0;
  double most_turn_ = kNever;
  int64_t work_ = 0;
  TimedSplit best_;
};

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_SUBSET_SEARCH_H_
