#ifndef SLUICE_KERNELS_CUDA_DEVICE_HOST_MACHINE_H_
#define SLUICE_KERNELS_CUDA_DEVICE_HOST_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device_host/machine_gates.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/tile.h"

namespace sluice::kernels::cuda {

inline constexpr int kWarpLanes = 32;

// In which order threads between two barriers, and blocks, take their turns.
enum class Schedule : uint8_t { kForward, kBackward };

// An array of a block's shared memory: cells of `size` bytes.
struct SharedArray {
  size_t bytes_begin = 0;
  size_t cells_begin = 0;
  int64_t count = 0;
};

// A lane's words of A and B.
struct TileWords {
  TileA a;
  TileB b;
};

// What a stream is to do, in the order of the calls. Used by one thread.
class MachineWork {
 public:
  using Recorded = std::vector<std::function<void()>>;

  // Runs `work` at once, or, from RunLater on, in RunEnqueued.
  void Enqueue(std::function<void()> work);
  // Returns the work that `enqueue` enqueues, in the place of all that.
  Recorded Record(const std::function<void()>& enqueue);
  void RunLater() { later_ = true; }
  void RunEnqueued() { RunEnqueued(enqueued()); }
  // The first `count` of the work that is enqueued.
  void RunEnqueued(size_t count);
  size_t enqueued() const { return enqueued_.size(); }

 private:
  bool later_ = false;
  Recorded* recorded_ = nullptr;  // takes what is enqueued
  std::deque<std::function<void()>> enqueued_;
};

// A GPU of one block at a time: every thread of a block is a fibre that runs
// up to its next barrier. Finds what a GPU leaves undefined, and goes on:
//   - a place of shared memory that is read before it is written, that two
//     threads touch between barriers, one of them to write, or that is outside
//     its array;
//   - a barrier that not every thread reaches, or reaches at another line.
// Used by one thread. Kernels see the machine through cuda_device/device.h.
class Machine : public MachineWork {
 public:
  explicit Machine(Schedule schedule);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Calls body(thread) on every thread of `blocks` blocks, one block after the
  // other. `threads`: whole warps. A block may allocate `shared_bytes`.
  void Run(int64_t blocks, int threads, size_t shared_bytes,
           const std::function<void(int thread)>& body);

  // Run's `shared_bytes` are within the limits.
  const DeviceLimits& limits() const { return limits_; }
  void Limit(const DeviceLimits& limits) { limits_ = limits; }

  // What was wrong so far; at most the first eight.
  const std::vector<std::string>& faults() const { return faults_; }

  // For the running kernel.
  int64_t block() const { return block_; }
  int64_t blocks() const { return blocks_; }
  int threads() const { return threads_; }
  void SyncBlock(int thread, int line);
  void SyncWarp(int thread, int line);
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
  // The block's gates, and its barriers so far.
  MachineGates& gates() { return gates_; }
  int32_t epoch() const { return epoch_; }
  // A warp's exchange, which orders nothing in memory.
  void Meet(int thread, int line);
  // Eight bytes of every thread that others of its warp read after Meet.
  // `turn`: 0 and 1 alternately, so that no meeting has to follow.
  uint64_t* Words(int turn) { return words_[turn].data(); }
  // The same, of words of a tile product.
  TileWords* Tiles(int turn) { return tiles_[turn].data(); }
  void Fault(int thread, const std::string& what);

 private:
  struct Thread;
  struct Cell;
  enum class State : uint8_t { kReady, kAtBlock, kAtWarp, kMeets, kDone };

  void RunBlock(const std::function<void(int thread)>& body);
  void RunReady();
  void RunWarp(int first);
  bool OpenWarp(int first);
  // Opens the barrier of the block that all have reached.
  void Release();
  void OpenAll();
  bool Ordered(int other_warp, int thread, int32_t epoch,
               int32_t warp_epoch) const;
  bool IsInside(int thread, const SharedArray& array, int64_t i);
  bool IsRace(const Cell& cell, int thread) const;
  bool IsAddedTo(int thread, const Cell& cell, int64_t i);
  void Wait(int thread, State state, int line);

  const Schedule schedule_;
  DeviceLimits limits_ = {227 * 1024, 2, true};
  std::vector<std::unique_ptr<Thread>> pool_;
  std::vector<std::string> faults_;
  int64_t block_ = 0;
  int64_t blocks_ = 0;
  int threads_ = 0;
  int alive_ = 0;
  int32_t epoch_ = 0;                 // barriers of the block so far
  std::vector<int32_t> warp_epochs_;  // of each warp
  size_t shared_bytes_ = 0;           // of a block
  size_t free_bytes_ = 0;             // of the running block
  std::vector<std::byte> shared_;
  std::vector<Cell> cells_;
  std::vector<SharedArray> arrays_;
  MachineGates gates_;
  std::vector<uint64_t> words_[2];
  std::vector<TileWords> tiles_[2];
  alignas(16) std::byte outside_[64] = {};
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_HOST_MACHINE_H_
