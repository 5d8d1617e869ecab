#ifndef SLUICE_COMMON_PLACEMENT_SPLIT_SUMS_H_
#define SLUICE_COMMON_PLACEMENT_SPLIT_SUMS_H_

#include <limits>

// What splits of layers are compared by: sums over their parts.
namespace sluice {

// The sum of a split that does not fit.
inline constexpr double kImpossibleSplit =
    std::numeric_limits<double>::infinity();
// Sums that differ by less are equal: the same split, mirrored.
inline constexpr double kSameSum = 1e-9;

}  // namespace sluice

#endif  // SLUICE_COMMON_PLACEMENT_SPLIT_SUMS_H_
