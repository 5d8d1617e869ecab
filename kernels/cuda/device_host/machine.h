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
#include "kernels/cuda/device_host/machine_memory.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/tile.h"

namespace sluice::kernels::cuda {

// In which order threads between two barriers, and blocks, take their turns.
enum class Schedule : uint8_t { kForward, kBackward };

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
class Machine : public MachineWork, public MachineMemory {
 public:
  explicit Machine(Schedule schedule);
  ~Machine() override;
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
  MachineGates& gates() { return gates_; }  // of the block
  // A warp's exchange, which orders nothing in memory.
  void Meet(int thread, int line);
  // Eight bytes of every thread that others of its warp read after Meet.
  // `turn`: 0 and 1 alternately, so that no meeting has to follow.
  uint64_t* Words(int turn) { return words_[turn].data(); }
  // The same, of words of a tile product.
  TileWords* Tiles(int turn) { return tiles_[turn].data(); }
  void Fault(int thread, const std::string& what) override;

 private:
  struct Thread;
  enum class State : uint8_t { kReady, kAtBlock, kAtWarp, kMeets, kDone };

  void RunBlock(const std::function<void(int thread)>& body);
  void RunReady();
  void RunWarp(int first);
  bool OpenWarp(int first);
  // Opens the barrier of the block that all have reached.
  void Release();
  void OpenAll();
  void Wait(int thread, State state, int line);

  const Schedule schedule_;
  DeviceLimits limits_ = {227 * 1024, 2, true};
  std::vector<std::unique_ptr<Thread>> pool_;
  std::vector<std::string> faults_;
  int64_t block_ = 0;
  int64_t blocks_ = 0;
  int threads_ = 0;
  int alive_ = 0;
  size_t shared_bytes_ = 0;  // of a block
  MachineGates gates_;
  std::vector<uint64_t> words_[2];
  std::vector<TileWords> tiles_[2];
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_HOST_MACHINE_H_
