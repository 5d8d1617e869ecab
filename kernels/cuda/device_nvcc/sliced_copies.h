#ifndef SLUICE_KERNELS_CUDA_DEVICE_NVCC_SLICED_COPIES_H_
#define SLUICE_KERNELS_CUDA_DEVICE_NVCC_SLICED_COPIES_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace sluice::kernels::cuda {

// Ends the process where CUDA refuses what it is asked for.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "GPU: %s: %s (%s)\n", what, cudaGetErrorString(error),
               cudaGetErrorName(error));
  std::abort();
}

// Large copies through pinned memory in slices: while the bus has one, the host
// copies the one before or behind. One owner has all slices until Release:
// copies of a step, as far as they fit. Used by its runtime's thread, which
// clears them before the device's context ends.
class SlicedCopies {
 public:
  static constexpr size_t kSliceBytes = size_t{256} << 10;

  // The bytes of whole slices.
  static size_t Whole(size_t bytes) {
    return (bytes + kSliceBytes - 1) / kSliceBytes * kSliceBytes;
  }
  // Takes pinned memory of whole slices; null: there are none. Nothing is on
  // its way.
  void Reserve(std::shared_ptr<void> memory, size_t bytes) {
    Clear();
    if (memory == nullptr) return;
    memory_ = std::move(memory);
    arrived_.resize(bytes / kSliceBytes);
    for (cudaEvent_t& event : arrived_) {
      Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
            "making an event");
    }
  }
  void Clear() {
    for (const cudaEvent_t event : arrived_) cudaEventDestroy(event);
    arrived_.clear();
    arriving_.clear();
    memory_.reset();
    owner_ = nullptr;
    used_ = 0;
  }

  // Whether `owner` may copy so many bytes next.
  bool Has(size_t bytes, const void* owner) {
    if (owner_ != nullptr && owner_ != owner) return false;
    if (Whole(bytes) / kSliceBytes > arrived_.size() - used_) return false;
    owner_ = owner;
    return true;
  }
  void CopyIn(const std::byte* from, std::byte* to, size_t bytes,
              cudaStream_t stream) {
    for (size_t at = 0; at < bytes; at += kSliceBytes, ++used_) {
      const size_t some = std::min(kSliceBytes, bytes - at);
      std::memcpy(SliceAt(used_), from + at, some);
      Check(cudaMemcpyAsync(to + at, SliceAt(used_), some,
                            cudaMemcpyHostToDevice, stream),
            "copying to the device");
    }
  }
  void CopyOut(const std::byte* from, std::byte* to, size_t bytes,
               cudaStream_t stream) {
    for (size_t at = 0; at < bytes; at += kSliceBytes, ++used_) {
      const size_t some = std::min(kSliceBytes, bytes - at);
      Check(cudaMemcpyAsync(SliceAt(used_), from + at, some,
                            cudaMemcpyDeviceToHost, stream),
            "copying from the device");
      Check(cudaEventRecord(arrived_[used_], stream), "marking the stream");
      arriving_.push_back({used_, to + at, some});
    }
  }
  // Hands the owner's slices on as they arrive.
  void HandOn(const void* owner) {
    if (owner_ != owner) return;
    for (const Arriving& one : arriving_) {
      Check(cudaEventSynchronize(arrived_[one.slice]), "running kernels");
      std::memcpy(one.to, SliceAt(one.slice), one.bytes);
    }
    arriving_.clear();
  }
  // Behind HandOn, when all of the owner's copies are done.
  void Release(const void* owner) {
    if (owner_ != owner) return;
    owner_ = nullptr;
    used_ = 0;
  }

 private:
  struct Arriving {
    size_t slice;
    void* to;
    size_t bytes;
  };

  std::byte* SliceAt(size_t slice) const {
    return static_cast<std::byte*>(memory_.get()) + slice * kSliceBytes;
  }

  std::shared_ptr<void> memory_;
  std::vector<cudaEvent_t> arrived_;  // a slice each
  const void* owner_ = nullptr;
  size_t used_ = 0;
  std::vector<Arriving> arriving_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_NVCC_SLICED_COPIES_H_
