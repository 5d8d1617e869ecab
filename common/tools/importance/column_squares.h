#ifndef SLUICE_COMMON_TOOLS_IMPORTANCE_COLUMN_SQUARES_H_
#define SLUICE_COMMON_TOOLS_IMPORTANCE_COLUMN_SQUARES_H_

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "common/device/make_backends.h"
#include "common/model_config/tensor_table.h"

namespace sluice {

// A weight of a model; `expert` is 0 where there are none.
struct WeightKey {
  int32_t layer = 0;
  WeightPlace place = WeightPlace::kQkv;
  int32_t expert = 0;
  auto operator<=>(const WeightKey&) const = default;
};

// The squares of the columns of a weight's inputs, added over rows.
struct ColumnSquares {
  std::vector<double> sums;
  int64_t rows = 0;
};
using SquaresByWeight = std::map<WeightKey, ColumnSquares>;

// Returns a factory whose backend, over this machine's CPU, adds to `to` what
// the products of each step read. The results are those of MakeBackends bit for
// bit. `to` outlives the backend. The stage starts at the model's first layer.
// The factory refuses several ranks: INVALID_ARGUMENT.
BackendFactory RecordingBackends(SquaresByWeight* to);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_IMPORTANCE_COLUMN_SQUARES_H_
