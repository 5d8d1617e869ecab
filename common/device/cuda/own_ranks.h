#ifndef SLUICE_COMMON_DEVICE_CUDA_OWN_RANKS_H_
#define SLUICE_COMMON_DEVICE_CUDA_OWN_RANKS_H_

#include <string>

#include "common/base/cat.h"

namespace sluice {

// The ranks of this process, [first, first + count) of a stage's `all`. An own
// rank's index counts from 0 within the process; its number is the stage's, and
// what messages say.
struct OwnRanks {
  int first = 0;
  int count = 1;
  int all = 1;

  static OwnRanks All(int ranks) { return {0, ranks, ranks}; }
  // Whether other processes have ranks of the stage.
  bool has_others() const { return count < all; }
  int NumberOf(int index) const { return first + index; }
  // "rank 1 of 4", "ranks 2 to 3 of 4".
  std::string Text() const {
    if (count == 1) return TextOf(0);
    return Cat("ranks ", first, " to ", first + count - 1, " of ", all);
  }
  std::string TextOf(int index) const {
    return Cat("rank ", NumberOf(index), " of ", all);
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_OWN_RANKS_H_
