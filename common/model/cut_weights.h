#ifndef SLUICE_COMMON_MODEL_CUT_WEIGHTS_H_
#define SLUICE_COMMON_MODEL_CUT_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/device/backend.h"
#include "kernels/context.h"

namespace sluice {

// Rows of a weight's part, and some of their columns.
struct WeightCut {
  size_t part = 0;  // of the weight that is cut
  int64_t row = 0;  // of the part
  int64_t rows = 0;
  int64_t col = 0;  // of a block's first element
  int64_t cols = 0;
  bool begins_part = true;  // of the weight that is made
};

// Copies the cuts, at least one, one below the other, to a weight in memory of
// `backend`. Both weights have the layout kernels::kPackedLayout in the host's
// memory.
std::unique_ptr<Weight> CutWeight(const Weight& from,
                                  std::span<const WeightCut> cuts,
                                  Backend& backend,
                                  const kernels::Context& context);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CUT_WEIGHTS_H_
