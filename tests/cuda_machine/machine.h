#ifndef SLUICE_TESTS_CUDA_MACHINE_MACHINE_H_
#define SLUICE_TESTS_CUDA_MACHINE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/runtime/launch_list.h"
#include "kernels/cuda/runtime/matrix_fragments.h"
#include "tests/cuda_machine/machine_gates.h"
#include "tests/cuda_machine/machine_memory.h"

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

// A launch as the machine runs it. `threads`: whole warps.
struct MachineLaunch {
  int64_t blocks = 0;
  int threads = 0;
  size_t shared_bytes = 0;  // that a block may allocate
};

// The limits of a machine that does all that is unconfirmed, or of another one.
struct MachineLimits : DeviceLimits {
  constexpr MachineLimits(size_t shared, int count, bool groups = false)
      : DeviceLimits{shared, count, groups, UnconfirmedSet::All()} {}
  constexpr MachineLimits(const DeviceLimits& limits) : DeviceLimits(limits) {}
};

// A GPU of one block at a time: every thread of a block is a fibre that runs
// up to its next barrier. Finds what a GPU leaves undefined, and goes on:
//   - a place of shared memory that is read before it is written, that two
//     threads touch between barriers, one of them to write, or that is outside
//     its array;
//   - a barrier that not every thread reaches, or reaches at another line;
//   - a launch of which no thread waits for its inputs.
// Used by one thread. Kernels see the machine through cuda_device/device.h.
class Machine : public MachineWork, public MachineMemory {
 public:
  explicit Machine(Schedule schedule);
  ~Machine() override;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  using Body = std::function<void(int thread)>;
  // Calls body(thread) on every thread of `blocks` blocks, one block after the
  // other.
  void Run(int64_t blocks, int threads, size_t shared_bytes, const Body& body) {
    RunAll({blocks, threads, shared_bytes}, body);
  }
  // The same of a kernel, some thread of which has to wait for its inputs:
  // kernels behind take the end of this one for the end of all ahead of it.
  void RunWaiting(const MachineLaunch& launch, const Body& body);
  // The next launch is a kernel of which RunWaiting runs one block, as far as
  // no thread waits for its inputs, and RunRest all that is left.
  void BeginEarly(int64_t block) { early_block_ = block; }
  void RunRest();

  // A launch's `shared_bytes` are within the limits.
  const DeviceLimits& limits() const { return limits_; }
  void Limit(const MachineLimits& limits) { limits_ = limits; }

  // What was wrong so far; at most the first eight.
  const std::vector<std::string>& faults() const { return faults_; }
  // Takes the other's faults, which has none then.
  void TakeFaults(Machine* other);
  Schedule schedule() const { return schedule_; }

  // For the running kernel.
  int64_t block() const { return block_; }
  int64_t blocks() const { return blocks_; }
  int threads() const { return threads_; }
  // Whether kernels ahead of this one may not have run.
  bool is_early() const { return is_early_; }
  void WaitForInputs(int thread);
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
  struct Fibres;
  enum class State : uint8_t {
    kReady,
    kAtInputs,
    kAtBlock,
    kAtWarp,
    kMeets,
    kDone
  };
  static constexpr int64_t kNoBlock = -1;

  void RunAll(const MachineLaunch& launch, const Body& body);
  void Prepare(const MachineLaunch& launch, const Body& body);
  void RunBlocksBut(int64_t block);
  void CheckWaited();
  void BeginBlock(int64_t block);
  // Runs the block to its end, or until threads wait for their inputs.
  void RunBlock();
  bool WaitsForInputs() const;
  void RunReady();
  void RunWarp(int first);
  bool OpenWarp(int first);
  // Opens the barrier of the block that all have reached.
  void Release();
  void OpenAll();
  void Wait(int thread, State state, int line);
  // The next thread of the warp that is ready; null: none.
  Thread* NextOf(int thread) const;

  const Schedule schedule_;
  MachineLimits limits_ = {227 * 1024, 2, true};
  std::vector<std::string> faults_;
  Body body_;
  int64_t early_block_ = kNoBlock;  // of the launch, that begins early
  bool is_early_ = false;
  bool has_waited_ = false;  // a thread of the launch
  int64_t block_ = 0;
  int64_t blocks_ = 0;
  int threads_ = 0;
  int alive_ = 0;
  size_t shared_bytes_ = 0;  // of a block
  MachineGates gates_;
  std::vector<uint64_t> words_[2];
  std::vector<TileWords> tiles_[2];
  std::unique_ptr<Fibres> fibres_;
  // Destroyed first: unwinds what has not ended.
  std::vector<std::unique_ptr<Thread>> pool_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_MACHINE_H_
