#ifndef SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_GATES_H_
#define SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_GATES_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::kernels::cuda {

// Copies of many bytes from device to shared memory, for which a block waits at
// gates in shared memory. GroupProducts read what they bring without more. A
// gate closes again behind each use. runtime/nvcc has the same for compute
// capabilities from 9.0 on.
class Gates {
 public:
  // All threads call. `openers`: warps that open a gate for each use.
  Gates(Block& block, int count, int openers)
      : gates_(block.Allocate<uint64_t>(count)) {
    if (block.thread() == 0) {
      block.machine().gates().Make(count, openers);
      for (int i = 0; i < count; ++i) gates_.Set(i, 0);
    }
    block.Sync();
  }
  // Stands between what kernels before wrote to a device's memory and copies of
  // that.
  void FenceMemory() {}
  // Opens a gate for the next use, in which the warp starts copies of so many
  // bytes, before or behind. All lanes call with the same; nothing of no bytes.
  void Open(Block& block, int gate, int bytes) {
    if (bytes == 0 || block.lane() != 0) return;
    Machine& machine = block.machine();
    if (!machine.gates().Open(gate, bytes, machine.epoch())) {
      block.Fault("opens a gate that is open");
    }
  }
  // Starts a copy of `count` elements, of a multiple of 16 bytes, to `to` from
  // element `at` on; both ends are 16-byte aligned. What was there is gone.
  // `from` is read as CopyAsync does. All lanes call with the same; nothing of
  // no elements.
  template <typename T>
  void Copy(Block& block, int gate, const Shared<T>& to, int at, const T* from,
            int count) {
    if (count == 0 || block.lane() != 0) return;
    const auto bytes = static_cast<int64_t>(count * sizeof(T));
    if (bytes % 16 != 0 || at * sizeof(T) % 16 != 0 ||
        reinterpret_cast<uintptr_t>(from) % 16 != 0) {
      block.Fault("starts a copy that is not of aligned sixteens of bytes");
    }
    for (int i = 0; i < count; ++i) to.Take(at + i);
    if (block.machine().is_early()) {
      block.machine().gates().Copy(
          gate, bytes, [to, at, read = std::vector<T>(from, from + count)] {
            for (size_t i = 0; i < read.size(); ++i) to.Land(at + i, read[i]);
          });
      return;
    }
    block.machine().gates().Copy(gate, bytes, [to, at, from, count] {
      for (int i = 0; i < count; ++i) to.Land(at + i, from[i]);
    });
  }
  // Waits until use number n of the gate is done; `odd`: n % 2. Here all have
  // opened it before the block's last barrier.
  void Wait(Block& block, int gate, int odd) {
    Machine& machine = block.machine();
    if (!machine.gates().Wait(gate, odd, machine.epoch())) {
      block.Fault(
          "waits at a gate that not all opened before the last barrier, or for "
          "which there are more copies than told, or fewer");
    }
  }

 private:
  const Shared<uint64_t> gates_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_GATES_H_
