#include "common/device/cuda/weight_upload.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/base/check.h"
#include "common/tensor/weight_format.h"
#include "kernels/cuda/fast/weight_layout.h"

namespace sluice {

void WeightUpload::Copy(const void* from, size_t bytes, void* to) {
  for (size_t at = 0; at < bytes; at += slice_bytes_) {
    CopySlice(static_cast<const std::byte*>(from) + at,
              std::min(slice_bytes_, bytes - at),
              static_cast<std::byte*>(to) + at);
  }
}

void WeightUpload::PackTiles(const HostWeight& weight, void* to) {
  using kernels::cuda::kTileSide;
  const WeightFormat& format = FormatOf(weight.type);
  const size_t tile_bytes = format.bytes(kTileSide * weight.cols);
  if (tile_bytes == 0) return;
  const int64_t most =
      std::max<int64_t>(static_cast<int64_t>(slice_bytes_ / tile_bytes), 1) *
      kTileSide;
  for (int64_t row = 0; row < weight.rows; row += most) {
    const int64_t rows = std::min(most, weight.rows - row);
    const size_t bytes = format.bytes(rows * weight.cols);
    void* const stored = stored_.AtLeast(bytes);
    CopySlice(weight.data.data() + format.bytes(row * weight.cols), bytes,
              stored);
    kernels::cuda::PackTiles(
        runtime_.stream(), {stored, weight.type, rows, weight.cols},
        static_cast<std::byte*>(to) +
            kernels::cuda::TileBytes(weight.type, row, weight.cols));
  }
}

void WeightUpload::Release() {
  if (host_[0].data == nullptr && host_[1].data == nullptr) return;
  runtime_.Sync();
  host_ = {};
  stored_.Release();
}

void WeightUpload::CopySlice(const std::byte* from, size_t bytes, void* to) {
  HostSlice& slice = host_[next_];
  next_ = 1 - next_;
  if (slice.bytes < bytes) {
    slice.data = runtime_.AllocateHost(bytes);
    // Other memory is copied all the same, slower.
    if (slice.data == nullptr) slice.data = {std::malloc(bytes), std::free};
    SLUICE_CHECK(slice.data != nullptr);
    slice.bytes = bytes;
  }
  std::memcpy(slice.data.get(), from, bytes);
  runtime_.Sync();  // the other slice is free from here on
  runtime_.CopyIn(slice.data.get(), to, {bytes});
}

}  // namespace sluice
