#ifndef SLUICE_KERNELS_CUDA_RUNTIME_NVCC_SLICED_COPIES_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_NVCC_SLICED_COPIES_H_

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
// copies the one before or behind. Two owners have half of the slices each
// until Release: copies of a step, as far as they fit, and those of the step
// that begins before it is done. Used by its runtime's thread, which clears
// them before the device's context ends.
class SlicedCopies {
 public:
  static constexpr size_t kSliceBytes = size_t{256} << 10;
  static constexpr size_t kOwners = 2;

  // The bytes of whole slices.
  static size_t Whole(size_t bytes) {
    return (bytes + kSliceBytes - 1) / kSliceBytes * kSliceBytes;
  }
  // Takes pinned memory of whole slices, `bytes` for each of `owners` owners;
  // null: there are none. Nothing is on its way.
  void Reserve(std::shared_ptr<void> memory, size_t bytes,
               size_t owners = kOwners) {
    Clear();
    if (memory == nullptr) return;
    memory_ = std::move(memory);
    each_ = bytes / kSliceBytes;
    owners_ = owners;
    arrived_.resize(owners_ * each_);
    for (cudaEvent_t& event : arrived_) {
      Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
            "making an event");
    }
  }
  void Clear() {
    for (const cudaEvent_t event : arrived_) cudaEventDestroy(event);
    arrived_.clear();
    memory_.reset();
    each_ = 0;
    for (Share& share : shares_) share = {};
  }

  // Whether `owner` may copy so many bytes next. If so, CopyIn or CopyOut of
  // them follows.
  bool Has(size_t bytes, const void* owner) {
    size_t share = IndexOf(owner);
    if (share == owners_) share = IndexOf(nullptr);
    if (share == owners_) return false;
    const size_t left = each_ - shares_[share].used;
    if (Whole(bytes) / kSliceBytes > left) return false;
    shares_[share].owner = owner;
    present_ = share;
    return true;
  }
  void CopyIn(const std::byte* from, std::byte* to, size_t bytes,
              cudaStream_t stream) {
    for (size_t at = 0; at < bytes; at += kSliceBytes) {
      const size_t some = std::min(kSliceBytes, bytes - at);
      std::byte* const slice = SliceAt(NextSlice());
      std::memcpy(slice, from + at, some);
      Check(
          cudaMemcpyAsync(to + at, slice, some, cudaMemcpyHostToDevice, stream),
          "copying to the device");
    }
  }
  void CopyOut(const std::byte* from, std::byte* to, size_t bytes,
               cudaStream_t stream) {
    for (size_t at = 0; at < bytes; at += kSliceBytes) {
      const size_t some = std::min(kSliceBytes, bytes - at);
      const size_t slice = NextSlice();
      Check(cudaMemcpyAsync(SliceAt(slice), from + at, some,
                            cudaMemcpyDeviceToHost, stream),
            "copying from the device");
      Check(cudaEventRecord(arrived_[slice], stream), "marking the stream");
      shares_[present_].arriving.push_back({slice, to + at, some});
    }
  }
  // Hands the owner's slices on as they arrive.
  void HandOn(const void* owner) {
    const size_t share = IndexOf(owner);
    if (share == owners_) return;
    for (const Arriving& one : shares_[share].arriving) {
      Check(cudaEventSynchronize(arrived_[one.slice]), "running kernels");
      std::memcpy(one.to, SliceAt(one.slice), one.bytes);
    }
    shares_[share].arriving.clear();
  }
  // Behind HandOn, when all of the owner's copies are done.
  void Release(const void* owner) {
    const size_t share = IndexOf(owner);
    if (share < owners_) shares_[share] = {};
  }

 private:
  struct Arriving {
    size_t slice;
    void* to;
    size_t bytes;
  };
  struct Share {
    const void* owner = nullptr;
    size_t used = 0;  // slices
    std::vector<Arriving> arriving;
  };

  // Returns the owner's share, owners_: none; of null, one that is free.
  size_t IndexOf(const void* owner) const {
    size_t i = 0;
    while (i < owners_ && shares_[i].owner != owner) ++i;
    return i;
  }
  // Of the present share.
  size_t NextSlice() { return present_ * each_ + shares_[present_].used++; }
  std::byte* SliceAt(size_t slice) const {
    return static_cast<std::byte*>(memory_.get()) + slice * kSliceBytes;
  }

  std::shared_ptr<void> memory_;
  size_t owners_ = kOwners;
  size_t each_ = 0;                   // slices of a share
  std::vector<cudaEvent_t> arrived_;  // a slice each
  Share shares_[kOwners];
  size_t present_ = 0;  // the share of the next copy
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_NVCC_SLICED_COPIES_H_
