#ifndef SLUICE_TESTS_CUDA_MACHINE_BEGUN_LAUNCHES_H_
#define SLUICE_TESTS_CUDA_MACHINE_BEGUN_LAUNCHES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/runtime/launch_list.h"
#include "tests/cuda_machine/machine.h"

namespace sluice::kernels::cuda {

// A list's launches that begin before those ahead of them have run, as on a
// GPU: a block of each goes on until its threads wait for their inputs, while
// up to kMostAhead launches ahead have done no more than that. So a kernel that
// touches too early what those touch shows in other bits. Which block it is,
// and how many launches are ahead, changes from launch to launch, and is the
// same in each run. Used by the machine's thread.
class BegunLaunches {
 public:
  using RunKernel = void(Machine* machine, int64_t blocks, size_t shared_bytes,
                         const void* args);

  // `machine`, which outlives this, gets the faults.
  explicit BegunLaunches(Machine* machine) : machine_(*machine) {}

  // Begins a launch, `early` or when all ahead have run. `args` stay until the
  // launch has run.
  void Add(const LaunchList::One& one, const void* args, bool early);
  // Runs what has begun.
  void Finish() { RunFirst(0); }

 private:
  static constexpr int64_t kMostAhead = 3;

  Machine& MachineOf(int64_t launch);
  // Runs all but the last `left` ones.
  void RunFirst(int64_t left);
  int64_t BlockOf(int64_t blocks);
  int64_t Draw(int64_t below);

  Machine& machine_;
  std::vector<std::unique_ptr<Machine>> machines_;  // a launch each, in turn
  int64_t begun_ = 0;                               // launches so far
  int64_t done_ = 0;                                // of those
  uint64_t drawn_ = 0;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_BEGUN_LAUNCHES_H_
