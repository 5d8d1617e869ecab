#ifndef SLUICE_COMMON_PLACEMENT_PLACE_BY_TIME_H_
#define SLUICE_COMMON_PLACEMENT_PLACE_BY_TIME_H_

#include <cstdint>
#include <span>

#include "common/placement/split_costs.h"

namespace sluice::placement {

// Up to so many machines PlaceByTime tries every order.
inline constexpr int32_t kMostExactMachines = 6;
// Of more machines PlaceByTime looks for splits that are faster by so much.
inline constexpr double kNearBest = 0.03;

// A split of layers over machines.
struct PlacedByTime {
  TimedSplit split;         // without parts: no split fits
  double seconds = kNever;  // what the problem's goal makes of it
  double bound = 0;         // no split takes less
  bool exact = false;       // no other split is faster
  bool fits() const { return !split.parts.empty(); }
};

// Returns the fastest split of the layers over some of the machines, in any
// order: which machines, in which order, which layers; without parts unless it
// takes less than `below`. Of up to kMostExactMachines machines that the rules
// do not bar no other split is faster (by a billionth). Of more it is where no
// machine that comes, goes or moves makes it faster, from the machines of
// BoundOf on; of up to SubsetSearch::kMostMachines all orders are tried then
// for a split that is faster by kNearBest, as long as that does not take too
// long. `bound` tells how far from the best it may be. `effort`: the part of
// the usual work that searches may take.
PlacedByTime PlaceByTime(const SplitProblem& problem, double below = kNever,
                         double effort = 1);

// Returns the fastest split over all machines of `order`, in that order. The
// problem's rules are not read.
PlacedByTime PlaceInOrder(const SplitProblem& problem,
                          std::span<const int32_t> order);

// Returns a split over the same machines, in the same order, that is as fast
// (by a billionth), and whose most crowded machine is the least crowded.
PlacedByTime LeastCrowded(const SplitProblem& problem, PlacedByTime placed);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_PLACE_BY_TIME_H_
