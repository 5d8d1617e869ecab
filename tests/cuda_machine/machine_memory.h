#ifndef SLUICE_TESTS_CUDA_MACHINE_MACHINE_MEMORY_H_
#define SLUICE_TESTS_CUDA_MACHINE_MACHINE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::kernels::cuda {

inline constexpr int kWarpLanes = 32;

// An array of a block's shared memory: cells of `size` bytes.
struct SharedArray {
  size_t bytes_begin = 0;
  size_t cells_begin = 0;
  int64_t count = 0;
};

// The shared memory of a machine's block, which knows who touched which element
// between which barriers: see Machine. Used by one thread.
class MachineMemory {
 public:
  MachineMemory();
  virtual ~MachineMemory();
  MachineMemory(const MachineMemory&) = delete;
  MachineMemory& operator=(const MachineMemory&) = delete;

  // Array number `index` of the block. Every thread asks for the same arrays.
  SharedArray Allocate(int thread, int index, size_t size, int64_t count);
  // Where element i's bytes are; a place of its own if i is outside. Marks the
  // access.
  std::byte* Read(int thread, const SharedArray& array, int64_t i, size_t size);
  std::byte* Write(int thread, const SharedArray& array, int64_t i,
                   size_t size);
  // The same for an atomic operation.
  std::byte* Update(int thread, const SharedArray& array, int64_t i);
  // A copy to element i begins: nothing is there, and no thread writes there,
  // until Arrive by the thread that waits for it, or Land for all threads. Both
  // return where the copy's bytes go.
  void Take(int thread, const SharedArray& array, int64_t i);
  std::byte* Arrive(int thread, const SharedArray& array, int64_t i);
  std::byte* Land(const SharedArray& array, int64_t i);
  // The block's barriers so far.
  int32_t epoch() const { return epoch_; }

 protected:
  // A thread did what a GPU leaves undefined.
  virtual void Fault(int thread, const std::string& what) = 0;
  // Another block begins: no arrays, which may have so many bytes.
  void Clear(int threads, size_t bytes);
  // The block, or a warp, passes a barrier.
  void PassBlock() { ++epoch_; }
  void PassWarp(int warp) { ++warp_epochs_[warp]; }

 private:
  struct Cell;

  bool Ordered(int other_warp, int thread, int32_t epoch,
               int32_t warp_epoch) const;
  bool IsInside(int thread, const SharedArray& array, int64_t i) {
    if (i >= 0 && i < array.count) return true;
    FaultOutside(thread, array, i);
    return false;
  }
  void FaultOutside(int thread, const SharedArray& array, int64_t i);
  bool IsRace(const Cell& cell, int thread) const;
  bool IsAddedTo(int thread, const Cell& cell, int64_t i);
  void FaultAddedTo(int thread, int64_t i);

  int32_t epoch_ = 0;                 // barriers of the block so far
  std::vector<int32_t> warp_epochs_;  // of each warp
  size_t free_bytes_ = 0;
  std::vector<std::byte> shared_;
  std::vector<Cell> cells_;
  std::vector<SharedArray> arrays_;
  alignas(16) std::byte outside_[64] = {};
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_MACHINE_MEMORY_H_
