#ifndef SLUICE_COMMON_WEIGHTS_AWQ_ORDER_H_
#define SLUICE_COMMON_WEIGHTS_AWQ_ORDER_H_

#include <algorithm>
#include <cstdint>

namespace sluice::weights {

// The row of eight that code i of one of AWQ's words belongs to.
inline constexpr int kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};

// Returns the place of row `row` in its word.
inline int PlaceInAwqWord(int64_t row) {
  return static_cast<int>(std::find(kAwqOrder, kAwqOrder + 8, row % 8) -
                          kAwqOrder);
}

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_AWQ_ORDER_H_
