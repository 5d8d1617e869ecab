#include "tests/cuda_machine/begun_launches.h"

namespace sluice::kernels::cuda {

void BegunLaunches::Add(const LaunchList::One& one, const void* args,
                        bool early) {
  RunFirst(early ? 1 + Draw(kMostAhead) : 0);
  Machine& machine = MachineOf(begun_++);
  machine.Limit(machine_.limits());
  machine.BeginEarly(BlockOf(one.blocks));
  auto* const run =
      reinterpret_cast<RunKernel*>(reinterpret_cast<uintptr_t>(one.kernel));
  run(&machine, one.blocks, one.shared_bytes, args);
}

void BegunLaunches::RunFirst(int64_t left) {
  while (begun_ - done_ > left) {
    Machine& machine = MachineOf(done_++);
    machine.RunRest();
    machine_.TakeFaults(&machine);
  }
}

Machine& BegunLaunches::MachineOf(int64_t launch) {
  const auto i = static_cast<size_t>(launch % (kMostAhead + 1));
  while (machines_.size() <= i) {
    machines_.push_back(std::make_unique<Machine>(machine_.schedule()));
  }
  return *machines_[i];
}

// The first and the last one have the ends of rows, and may have nothing to do.
int64_t BegunLaunches::BlockOf(int64_t blocks) {
  switch (Draw(3)) {
    case 0:
      return 0;
    case 1:
      return blocks - 1;
    default:
      return Draw(blocks);
  }
}

int64_t BegunLaunches::Draw(int64_t below) {
  drawn_ = drawn_ * 6364136223846793005u + 1442695040888963407u;
  return static_cast<int64_t>(drawn_ >> 33) % below;
}

}  // namespace sluice::kernels::cuda
