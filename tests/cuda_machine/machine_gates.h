#ifndef SLUICE_TESTS_CUDA_MACHINE_MACHINE_GATES_H_
#define SLUICE_TESTS_CUDA_MACHINE_MACHINE_GATES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace sluice::kernels::cuda {

// The gates of a block (cuda_device/gates.h). The copies of a use are done at
// its first wait, as late as may be. `epoch`: the block's barriers so far.
// False: a kernel did what a GPU leaves undefined, or what could wait for ever.
class MachineGates {
 public:
  void Make(int count, int openers) {
    gates_.resize(static_cast<size_t>(count));
    for (Gate& gate : gates_) gate.openers = openers;
  }
  bool Open(int gate, int64_t bytes, int32_t epoch) {
    Gate& own = gates_[gate];
    if (own.opened == own.openers) return false;
    ++own.opened;
    own.bytes += bytes;
    own.epoch = epoch;
    return true;
  }
  void Copy(int gate, int64_t bytes, std::function<void()> copy) {
    gates_[gate].bytes -= bytes;
    gates_[gate].copies.push_back(std::move(copy));
  }
  bool Wait(int gate, int odd, int32_t epoch) {
    Gate& own = gates_[gate];
    if (own.uses % 2 != odd) return true;
    if (own.opened != own.openers || own.epoch == epoch || own.bytes != 0) {
      return false;
    }
    for (const auto& copy : own.copies) copy();
    own.copies.clear();
    own.opened = 0;
    ++own.uses;
    return true;
  }

 private:
  struct Gate {
    int openers = 0;
    int opened = 0;     // by so many, of the use that is not done
    int64_t bytes = 0;  // that they told and no copy brings
    int32_t epoch = 0;  // of the last opener
    int64_t uses = 0;   // that are done
    std::vector<std::function<void()>> copies;
  };
  std::vector<Gate> gates_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_MACHINE_GATES_H_
