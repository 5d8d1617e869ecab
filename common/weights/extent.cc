#include "common/weights/extent.h"

#include <algorithm>

#include "common/weights/file.h"

namespace sluice::weights {

StatusOr<int64_t> CountElements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  bool overflow = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return InvalidArgument("negative dimension ", dim);
    overflow |= __builtin_mul_overflow(product, dim, &product);
  }
  // Checked at the end, but a zero dimension must not hide an overflow.
  if (overflow) return InvalidArgument("number of elements is above 2^63-1");
  return product;
}

StatusOr<uint64_t> StoredBytes(DType dtype, const std::vector<int64_t>& shape) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t elements, CountElements(shape));
  const BlockSize block = BlockSizeOf(dtype);
  const int64_t cols = shape.empty() ? 1 : shape.back();
  if (cols % block.elements != 0) {
    return InvalidArgument("row of ", cols, " elements is no multiple of ",
                           dtype, "'s block of ", block.elements);
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / block.elements, block.bytes, &bytes)) {
    return InvalidArgument("size in bytes is above 2^63-1");
  }
  return static_cast<uint64_t>(bytes);
}

Status CheckNoOverlap(std::string_view path, std::vector<Extent> extents) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i) {
    const Extent& before = extents[i - 1];
    const Extent& after = extents[i];
    if (after.begin - before.begin < before.size) {
      return InvalidArgument(path, ": tensors ", Quoted(before.name), " and ",
                             Quoted(after.name), " overlap at ", after.begin);
    }
  }
  return OkStatus();
}

}  // namespace sluice::weights
