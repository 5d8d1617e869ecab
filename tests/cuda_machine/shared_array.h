#ifndef SLUICE_TESTS_CUDA_MACHINE_SHARED_ARRAY_H_
#define SLUICE_TESTS_CUDA_MACHINE_SHARED_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/base/check.h"
#include "tests/cuda_machine/machine.h"

namespace sluice::kernels::cuda {

// Returns an address that a GPU could use for so many bytes at once.
template <typename T>
T* CheckAligned(T* address, int bytes) {
  SLUICE_CHECK(reinterpret_cast<uintptr_t>(address) %
                   static_cast<uintptr_t>(bytes) ==
               0);
  return address;
}
// The same for an element of shared memory.
template <typename T>
int64_t CheckAligned(int64_t element, int bytes) {
  SLUICE_CHECK(element * static_cast<int64_t>(sizeof(T)) % bytes == 0);
  return element;
}

// An array of a block's shared memory as one thread sees it.
template <typename T>
class Shared {
 public:
  Shared(Machine* machine, int thread, SharedArray array)
      : machine_(machine), thread_(thread), array_(array) {}
  T Get(int64_t i) const {
    T value;
    std::memcpy(&value, machine_->Read(thread_, array_, i, sizeof(T)),
                sizeof(T));
    return value;
  }
  void Set(int64_t i, T value) const {
    std::memcpy(machine_->Write(thread_, array_, i, sizeof(T)), &value,
                sizeof(T));
  }
  // A copy to the element begins, and is done: nothing is there meanwhile, then
  // this thread, or all threads, may read it.
  void Take(int64_t i) const { machine_->Take(thread_, array_, i); }
  void Arrive(int64_t i, T value) const {
    std::memcpy(machine_->Arrive(thread_, array_, i), &value, sizeof(T));
  }
  void Land(int64_t i, T value) const {
    std::memcpy(machine_->Land(array_, i), &value, sizeof(T));
  }
  // Adds an integer; several threads may between two barriers of the block.
  void Add(int64_t i, T value) const {
    T sum;
    std::byte* const at = machine_->Update(thread_, array_, i);
    std::memcpy(&sum, at, sizeof(T));
    sum += value;
    std::memcpy(at, &sum, sizeof(T));
  }

 private:
  Machine* machine_;
  int thread_;
  SharedArray array_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_SHARED_ARRAY_H_
