#include <algorithm>

#include "common/base/check.h"
#include "common/tensor/buffer.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/model_contents.h"

namespace sluice::weights {

Status ReadTiled(const ModelFile& model, const ComposedTensor& tensor,
                 const Slice& slice, DType as, std::byte* out) {
  const BlockSize block = BlockSizeOf(as);
  const int64_t cols = tensor.info.cols();
  const int64_t width = tensor.head_cols;
  SLUICE_CHECK(cols % block.elements == 0 &&
               (as == DType::kF32 || width % block.elements == 0));
  const auto bytes_of = [&](int64_t columns) {
    return static_cast<size_t>(columns / block.elements * block.bytes);
  };
  // A slice's columns may stand anywhere in the rows.
  const Slice whole = {slice.row_begin, slice.row_end, 0, cols};
  Buffer stored(bytes_of(cols) *
                static_cast<size_t>(slice.row_end - slice.row_begin));
  SLUICE_RETURN_IF_ERROR(
      as == DType::kF32
          ? model.ReadF32(tensor.codes, whole, stored.as<float>())
          : model.ReadStoredRows(tensor.codes, whole, stored.data()));
  for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
    const std::byte* const from =
        stored.data() +
        static_cast<size_t>(row - slice.row_begin) * bytes_of(cols);
    for (int64_t col = slice.col_begin; col < slice.col_end;) {
      const int64_t head = col / width;
      const int64_t end = std::min(slice.col_end, (head + 1) * width);
      const int64_t at =
          TiledHeads::StoredHead(head, cols / width, tensor.head_groups) *
              width +
          col % width;
      out = std::copy_n(from + bytes_of(at), bytes_of(end - col), out);
      col = end;
    }
  }
  return OkStatus();
}

}  // namespace sluice::weights
