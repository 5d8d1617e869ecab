#ifndef SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_DEVICE_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime/launch_list.h"
#include "kernels/cuda/runtime/matrix_fragments.h"

// What kernels are written against, for nvcc; tests/cuda_machine has the same
// for a machine without a GPU. kernels/cuda/DEVICE.md says what each function
// means. Other compilers, which call kernels' functions alone, see the stream.

struct CUstream_st;

namespace sluice::kernels::cuda {

using Stream = CUstream_st*;

}  // namespace sluice::kernels::cuda

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define SLUICE_DEVICE __device__ __forceinline__
#define SLUICE_UNROLL _Pragma("unroll")
#define SLUICE_ROLL _Pragma("unroll 1")

namespace sluice::kernels::cuda {

inline constexpr int kWarpLanes = 32;

template <typename T>
class Shared {
 public:
  SLUICE_DEVICE explicit Shared(T* data) : data_(data) {}
  SLUICE_DEVICE T Get(int64_t i) const { return data_[i]; }
  SLUICE_DEVICE void Set(int64_t i, T value) const { data_[i] = value; }
  SLUICE_DEVICE void Add(int64_t i, T value) const {
    if constexpr (sizeof(T) == sizeof(uint64_t)) {
      atomicAdd(reinterpret_cast<unsigned long long*>(data_ + i),
                static_cast<unsigned long long>(value));
    } else {
      atomicAdd(data_ + i, value);
    }
  }
  SLUICE_DEVICE T* at(int64_t i) const { return data_ + i; }

 private:
  T* data_;
};

class Block {
 public:
  SLUICE_DEVICE Block() {}
  SLUICE_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  SLUICE_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
  SLUICE_DEVICE int lane() const { return thread() % kWarpLanes; }
  SLUICE_DEVICE int warp() const { return thread() / kWarpLanes; }
  SLUICE_DEVICE int64_t index() const { return blockIdx.x; }
  SLUICE_DEVICE int64_t count() const { return gridDim.x; }

  template <typename T>
  SLUICE_DEVICE Shared<T> Allocate(int64_t count) {
    extern __shared__ __align__(16) unsigned char shared[];
    T* const data = reinterpret_cast<T*>(shared + used_);
    used_ += (static_cast<int>(count * sizeof(T)) + 15) / 16 * 16;
    return Shared<T>(data);
  }
  // Where a block's memory is depends on its cluster: compilers would ask for
  // it at every access, but for a number that comes from a lane.
  template <typename T>
  SLUICE_DEVICE Shared<T> Kept(const Shared<T>& array) {
#if __CUDA_ARCH__ >= 900
    const auto own =
        static_cast<uint32_t>(__cvta_generic_to_shared(array.at(0)));
    return Shared<T>(static_cast<T*>(
        __cvta_shared_to_generic(__shfl_sync(0xFFFFFFFFu, own, 0))));
#else
    return array;
#endif
  }
  SLUICE_DEVICE void Sync() { __syncthreads(); }
  SLUICE_DEVICE void SyncWarp() { __syncwarp(); }
  template <typename T>
  SLUICE_DEVICE T ShuffleXor(T value, int mask) {
    return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
  }
  template <typename T>
  SLUICE_DEVICE T Shuffle(T value, int from) {
    return __shfl_sync(0xFFFFFFFFu, value, from);
  }
  SLUICE_DEVICE uint32_t Ballot(bool vote) {
    return __ballot_sync(0xFFFFFFFFu, vote);
  }
  SLUICE_DEVICE bool ArriveLast(uint32_t* arrived, uint32_t blocks) {
    __syncwarp();
    uint32_t before = 0;
    Fence();
    if (lane() == 0) before = atomicInc(arrived, blocks - 1);
    const bool last = Shuffle(before, 0) == blocks - 1;
    if (last) Fence();
    __syncwarp();
    return last;
  }
  SLUICE_DEVICE uint32_t Most(uint32_t value) {
    return __reduce_max_sync(0xFFFFFFFFu, value);
  }
  SLUICE_DEVICE uint32_t Least(uint32_t value) {
    return __reduce_min_sync(0xFFFFFFFFu, value);
  }
  // A kernel may begin before those ahead of it have ended: what they wrote is
  // there once this returns.
  SLUICE_DEVICE void WaitForInputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
  // Asks for a multiple of 16 bytes to come near. A thread for all.
  SLUICE_DEVICE void Prefetch(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from),
                 "r"(bytes));
#endif
  }
  SLUICE_DEVICE TileC TileProduct(const TileA& a, const TileB& b) {
    TileC c;
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(c.values[0]), "=f"(c.values[1]), "=f"(c.values[2]),
          "=f"(c.values[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]),
          "r"(b.words[0]), "r"(b.words[1]), "f"(0.0f));
    return c;
  }
  SLUICE_DEVICE void MultiplyTile(const TileA& a, const TileB& b, TileC& c) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c.values[0]), "+f"(c.values[1]), "+f"(c.values[2]),
          "+f"(c.values[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]),
          "r"(b.words[0]), "r"(b.words[1]));
  }
  SLUICE_DEVICE void MultiplyCodes(const TileA& a, const TileB& b, TileI& c) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c.values[0]), "+r"(c.values[1]), "+r"(c.values[2]),
          "+r"(c.values[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]),
          "r"(b.words[0]), "r"(b.words[1]));
  }
  template <int kBytes = 16, typename T>
  SLUICE_DEVICE void CopyAsync(const Shared<T>& to, int64_t at, const T* from) {
    const auto address =
        static_cast<uint32_t>(__cvta_generic_to_shared(to.at(at)));
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address),
                   "l"(from)
                   : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address),
                   "l"(from), "n"(kBytes)
                   : "memory");
    }
  }
  SLUICE_DEVICE void WaitCopies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
  SLUICE_DEVICE void CommitCopies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  template <int kGroups>
  SLUICE_DEVICE void WaitCopies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
  }

 private:
  // What the warp stored, or saw, before comes before what it stores, or sees,
  // behind: for all blocks.
  static SLUICE_DEVICE void Fence() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
  int used_ = 0;
};

SLUICE_DEVICE float Fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
SLUICE_DEVICE float SquareRoot(float x) { return __fsqrt_rn(x); }
SLUICE_DEVICE float PowerOf2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
template <typename To, typename From>
SLUICE_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}
SLUICE_DEVICE int32_t DotBytes(int32_t sum, uint32_t a, uint32_t b) {
  int32_t to;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(to) : "r"(a), "r"(b), "r"(sum));
  return to;
}

template <typename T>
SLUICE_DEVICE T* ComputedHere(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}
SLUICE_DEVICE int ComputedHere(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

SLUICE_DEVICE int CountBits(uint32_t bits) { return __popc(bits); }
SLUICE_DEVICE uint32_t LowerHalves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x5410);
}
SLUICE_DEVICE uint32_t UpperHalves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x7632);
}
SLUICE_DEVICE float LowerHalfAsFloat(uint32_t word) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(word)));
  return value;
}
// One instruction: compilers take two where both numbers are constants.
template <uint32_t kMask>
SLUICE_DEVICE uint32_t WithBits(uint32_t base, uint32_t bits) {
  uint32_t to;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
      : "=r"(to)
      : "r"(bits), "n"(kMask), "r"(base));
  return to;
}
SLUICE_DEVICE uint32_t PickBytes(uint32_t a, uint32_t b, uint32_t places) {
  return __byte_perm(a, b, places);
}
SLUICE_DEVICE float Larger(float a, float b) { return fmaxf(a, b); }

SLUICE_DEVICE uint32_t LoadWord(const void* from) {
  return *static_cast<const uint32_t*>(from);
}

SLUICE_DEVICE TileA LoadTile(const void* from) {
  const uint4 words = __ldg(static_cast<const uint4*>(from));
  return {{words.x, words.y, words.z, words.w}};
}
SLUICE_DEVICE TileB LoadHalfTile(const void* from) {
  const uint2 words = __ldg(static_cast<const uint2*>(from));
  return {{words.x, words.y}};
}
SLUICE_DEVICE TileA LoadTile(const Shared<uint32_t>& from, int64_t at) {
  const uint4 words = *reinterpret_cast<const uint4*>(from.at(at));
  return {{words.x, words.y, words.z, words.w}};
}
SLUICE_DEVICE TileB LoadHalfTile(const Shared<uint32_t>& from, int64_t at) {
  const uint2 words = *reinterpret_cast<const uint2*>(from.at(at));
  return {{words.x, words.y}};
}
SLUICE_DEVICE Quad LoadQuad(const float* from) {
  const float4 floats = *reinterpret_cast<const float4*>(from);
  return {{floats.x, floats.y, floats.z, floats.w}};
}
SLUICE_DEVICE Quad LoadQuad(const Shared<float>& from, int64_t at) {
  return LoadQuad(from.at(at));
}
SLUICE_DEVICE void StoreQuad(const Shared<float>& to, int64_t at,
                             const Quad& floats) {
  *reinterpret_cast<float4*>(to.at(at)) = make_float4(
      floats.values[0], floats.values[1], floats.values[2], floats.values[3]);
}
// One instruction, which compilers do not mix with stores of other branches.
SLUICE_DEVICE void StoreQuad(float* to, const Quad& floats) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "f"(floats.values[0]), "f"(floats.values[1]),
               "f"(floats.values[2]), "f"(floats.values[3])
               : "memory");
}
SLUICE_DEVICE void StoreHalfTile(void* to, const TileB& words) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to),
               "r"(words.words[0]), "r"(words.words[1])
               : "memory");
}

SLUICE_DEVICE uint32_t PackPair(float lower, float upper) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
  return pair;
}
SLUICE_DEVICE uint32_t SubtractPairs(uint32_t a, uint32_t b) {
  uint32_t differences;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(differences)
      : "r"(b), "r"(0xBF80BF80u), "r"(a));  // times -1
  return differences;
}
SLUICE_DEVICE uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  uint32_t products;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(products)
      : "r"(a), "r"(b), "r"(0x80008000u));  // plus -0
  return products;
}

}  // namespace sluice::kernels::cuda

#endif  // __CUDACC__

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_NVCC_CUDA_DEVICE_DEVICE_H_
