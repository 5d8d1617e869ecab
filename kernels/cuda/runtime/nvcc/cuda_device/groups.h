#ifndef SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_GROUPS_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_GROUPS_H_

#include <cuda_device/device.h>

// Products of four warps together; tests/cuda_machine has the same, DEVICE.md
// says what each means.

#ifdef __CUDACC__

namespace sluice::kernels::cuda {

class GroupProducts {
 public:
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  static constexpr bool kHere = true;
#else
  static constexpr bool kHere = false;
#endif

  // A kernel for another device has begun on this one.
  static SLUICE_DEVICE void Stop() { asm volatile("trap;"); }

  SLUICE_DEVICE void FenceRegisters(GroupSums& sums) {
    Touch(sums);  // nothing is written behind the fence
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  template <int kOctetWords>
  SLUICE_DEVICE void Multiply(Block& block, const TileA& a,
                              const Shared<uint32_t>& b, int at,
                              GroupSums& sums);
  SLUICE_DEVICE void Commit() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  }
  template <int kGroups>
  SLUICE_DEVICE void Wait(Block&) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
#endif
  }
  // Compilers read the sums behind the wait.
  SLUICE_DEVICE void WaitFor(Block& block, GroupSums& sums) {
    Wait<0>(block);
    Touch(sums);
  }

 private:
  static SLUICE_DEVICE void Touch(GroupSums& sums) {
    SLUICE_UNROLL
    for (int i = 0; i < 4 * kGroupOctets; ++i) {
      asm volatile("" : "+f"(sums[i / 4].values[i % 4])::"memory");
    }
  }
};

template <int kOctetWords>
SLUICE_DEVICE void GroupProducts::Multiply(Block&, const TileA& a,
                                           const Shared<uint32_t>& b, int at,
                                           GroupSums& sums) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // In sixteens of bytes: where the matrix begins, how far it is from eight k
  // to the next and from eight columns to the next. No swizzle.
  constexpr uint64_t kSteps =
      uint64_t{kWarpLanes / 4} << 16 | uint64_t{kOctetWords / 4} << 32;
  const auto begin = static_cast<uint32_t>(__cvta_generic_to_shared(b.at(at)));
  const uint64_t matrix = kSteps | (begin >> 4 & 0x3FFFu);
#define SLUICE_OCTET(o)                                                      \
  "+f"(sums[o].values[0]), "+f"(sums[o].values[1]), "+f"(sums[o].values[2]), \
      "+f"(sums[o].values[3])
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
      : SLUICE_OCTET(0), SLUICE_OCTET(1), SLUICE_OCTET(2), SLUICE_OCTET(3),
        SLUICE_OCTET(4), SLUICE_OCTET(5), SLUICE_OCTET(6), SLUICE_OCTET(7),
        SLUICE_OCTET(8), SLUICE_OCTET(9), SLUICE_OCTET(10), SLUICE_OCTET(11),
        SLUICE_OCTET(12), SLUICE_OCTET(13), SLUICE_OCTET(14), SLUICE_OCTET(15)
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]),
        "l"(matrix)
      : "memory");
#undef SLUICE_OCTET
#else
  (void)a, (void)b, (void)at, (void)sums;
#endif
}

}  // namespace sluice::kernels::cuda

#endif  // __CUDACC__

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_GROUPS_H_
