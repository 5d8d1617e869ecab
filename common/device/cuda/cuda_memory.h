#ifndef SLUICE_COMMON_DEVICE_CUDA_CUDA_MEMORY_H_
#define SLUICE_COMMON_DEVICE_CUDA_CUDA_MEMORY_H_

#include <cstddef>
#include <string>

#include "common/base/cat.h"
#include "common/base/end_process.h"
#include "common/base/status.h"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice {

inline std::string NoMemoryText(const kernels::cuda::Runtime& runtime,
                                size_t bytes) {
  return Cat("GPU ", runtime.facts().index, " has no ", bytes,
             " bytes left of ", runtime.facts().total_memory);
}

// Returns `bytes` of the device. Ends the process if there are not so many:
// what a stage needs is counted before it is loaded, but other processes may
// take memory meanwhile. The next one counts anew.
inline void* AllocateOrDie(kernels::cuda::Runtime& runtime, size_t bytes) {
  void* const data = runtime.Allocate(bytes);
  if (data == nullptr) EndToBeReplaced(NoMemoryText(runtime, bytes));
  return data;
}

// Device memory of one use that grows to the most that was asked for and stays,
// at one address until it grows. The runtime must outlive it.
class GrowingMemory {
 public:
  explicit GrowingMemory(kernels::cuda::Runtime* runtime) : runtime_(runtime) {}
  ~GrowingMemory() { Release(); }
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  // Returns at least `bytes`, whose contents a growth loses. What the stream
  // was handed before may still use the smaller memory.
  void* AtLeast(size_t bytes) {
    if (data_ != nullptr && bytes <= bytes_) return data_;
    if (data_ != nullptr) runtime_->Free(data_);
    data_ = AllocateOrDie(*runtime_, bytes);
    bytes_ = bytes;
    return data_;
  }
  template <typename T>
  T* AtLeast(int64_t count) {
    return static_cast<T*>(AtLeast(static_cast<size_t>(count) * sizeof(T)));
  }
  // Takes `bytes` in place of what there was. RESOURCE_EXHAUSTED if there are
  // not so many.
  Status Reserve(size_t bytes) {
    Release();
    data_ = runtime_->Allocate(bytes);
    if (data_ == nullptr) {
      return ResourceExhausted(NoMemoryText(*runtime_, bytes));
    }
    bytes_ = bytes;
    return OkStatus();
  }
  // Gives the memory back.
  void Release() {
    if (data_ != nullptr) runtime_->Free(data_);
    data_ = nullptr;
    bytes_ = 0;
  }
  size_t bytes() const { return bytes_; }

 private:
  kernels::cuda::Runtime* const runtime_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_CUDA_MEMORY_H_
