#ifndef SLUICE_COMMON_WEIGHTS_EXTENT_H_
#define SLUICE_COMMON_WEIGHTS_EXTENT_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/weights/dtype.h"

namespace sluice::weights {

// Returns the elements of a tensor of `shape`. INVALID_ARGUMENT for a negative
// dimension or a product of 2^63 and more.
StatusOr<int64_t> CountElements(const std::vector<int64_t>& shape);

// Returns the bytes of a tensor in its file. INVALID_ARGUMENT if its last
// dimension is no multiple of the block, or the product overflows.
StatusOr<uint64_t> StoredBytes(DType dtype, const std::vector<int64_t>& shape);

// A named run of bytes in a file.
struct Extent {
  uint64_t begin = 0;
  uint64_t size = 0;
  std::string_view name;
};

// INVALID_ARGUMENT names two extents that share a byte. Sorts its copy.
Status CheckNoOverlap(std::string_view path, std::vector<Extent> extents);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_EXTENT_H_
