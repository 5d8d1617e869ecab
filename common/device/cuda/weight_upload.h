#ifndef SLUICE_COMMON_DEVICE_CUDA_WEIGHT_UPLOAD_H_
#define SLUICE_COMMON_DEVICE_CUDA_WEIGHT_UPLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/device/cuda/cuda_memory.h"
#include "common/tensor/host_weight.h"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice {

// Brings weights to a device in slices: one is copied to it while the next one
// is copied to memory that the device reads fastest. Host memory that a call
// was given may go when the call returns; what it writes is there for what the
// stream is handed next. Used by one thread; the runtime must outlive it.
class WeightUpload {
 public:
  // Bytes of a slice, of which two are on the host and one on the device, and
  // more only where 16 rows of a weight have more.
  static constexpr size_t kSliceBytes = size_t{16} << 20;

  explicit WeightUpload(kernels::cuda::Runtime* runtime,
                        size_t slice_bytes = kSliceBytes)
      : runtime_(*runtime), slice_bytes_(slice_bytes), stored_(runtime) {}

  // Copies bytes to `to`, which is the device's.
  void Copy(const void* from, size_t bytes, void* to);
  // Writes the tiles of a weight (kernels/cuda/fast/weight_layout.h) to `to`.
  void PackTiles(const HostWeight& weight, void* to);
  // Gives back the slices' memory. The next call takes it again.
  void Release();

 private:
  // Puts a slice at `to` behind what the stream has been handed.
  void CopySlice(const std::byte* from, size_t bytes, void* to);

  kernels::cuda::Runtime& runtime_;
  const size_t slice_bytes_;
  struct HostSlice {
    std::shared_ptr<void> data;
    size_t bytes = 0;
  };
  // The one that `next_` names is free; the stream may read the other one.
  std::array<HostSlice, 2> host_;
  size_t next_ = 0;
  GrowingMemory stored_;  // a slice on the device
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_WEIGHT_UPLOAD_H_
