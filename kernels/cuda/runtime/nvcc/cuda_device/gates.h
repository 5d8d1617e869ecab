#ifndef SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_GATES_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_GATES_H_

#include <cuda_device/device.h>

// Copies that a block waits for at gates; tests/cuda_machine has the same,
// DEVICE.md says what each means.

#ifdef __CUDACC__

namespace sluice::kernels::cuda {

class Gates {
 public:
  SLUICE_DEVICE Gates(Block& block, int count, int openers)
      : gates_(block.Kept(block.Allocate<uint64_t>(count))) {
#if __CUDA_ARCH__ >= 900
    if (block.thread() == 0) {
      for (int i = 0; i < count; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(At(i)),
                     "r"(openers)
                     : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
#else
    (void)openers;
#endif
    block.Sync();
  }
  SLUICE_DEVICE void FenceMemory() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
  }
  // No branches: a warp's products may be under way (groups.h).
  SLUICE_DEVICE void Open(Block&, int gate, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .pred any, own;\n"
        "setp.ne.s32 any, %1, 0;\n"
        "elect.sync _|own, 0xFFFFFFFF;\n"
        "and.pred own, own, any;\n"
        "@own mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n"
        "}" ::"r"(At(gate)),
        "r"(bytes)
        : "memory");
#else
    (void)gate, (void)bytes;
#endif
  }
  template <typename T>
  SLUICE_DEVICE void Copy(Block&, int gate, const Shared<T>& to, int at,
                          const T* from, int count) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .pred any, own;\n"
        "setp.ne.s32 any, %2, 0;\n"
        "elect.sync _|own, 0xFFFFFFFF;\n"
        "and.pred own, own, any;\n"
        "@own cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1], %2, [%3];\n"
        "}" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to.at(at)))),
        "l"(from), "r"(count * static_cast<int>(sizeof(T))), "r"(At(gate))
        : "memory");
#else
    (void)gate, (void)to, (void)at, (void)from, (void)count;
#endif
  }
  SLUICE_DEVICE void Wait(Block&, int gate, int odd) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .pred there;\n"
        "Again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
        "@there bra There;\n"
        "bra Again;\n"
        "There:\n"
        "}" ::"r"(At(gate)),
        "r"(odd)
        : "memory");
#else
    (void)gate, (void)odd;
#endif
  }

 private:
  SLUICE_DEVICE uint32_t At(int gate) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(gates_.at(gate)));
  }

  const Shared<uint64_t> gates_;
};

}  // namespace sluice::kernels::cuda

#endif  // __CUDACC__

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_GATES_H_
