#ifndef SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_DEVICE_H_
#define SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_DEVICE_H_

// All operations that a kernel may call, as runtime/nvcc has them.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "common/base/check.h"
#include "kernels/cuda/runtime/launch_list.h"
#include "tests/cuda_machine/machine.h"
#include "tests/cuda_machine/shared_array.h"

// What kernels are written against, on a machine without a GPU; runtime/nvcc
// has the same for nvcc. kernels/cuda/DEVICE.md says what each function means.

#define SLUICE_DEVICE inline
// Before a loop of constant length: every pass is code of its own, so that
// arrays that its counter indexes can be registers.
#define SLUICE_UNROLL
// The opposite: passes share code and registers.
#define SLUICE_ROLL

namespace sluice::kernels::cuda {

// A half of a word of two BF16 numbers.
SLUICE_DEVICE float Bf16Half(uint32_t pair, int half) {
  return __builtin_bit_cast(float, half == 0 ? pair << 16 : pair & 0xFFFF0000u);
}

// A thread's place in its block, and what it does with others.
class Block {
 public:
  Block(Machine* machine, int thread) : machine_(machine), thread_(thread) {}

  int thread() const { return thread_; }
  int threads() const { return machine_->threads(); }
  int lane() const { return thread_ % kWarpLanes; }
  int warp() const { return thread_ / kWarpLanes; }
  int64_t index() const { return machine_->block(); }
  int64_t count() const { return machine_->blocks(); }

  template <typename T>
  Shared<T> Allocate(int64_t count) {
    return {machine_, thread_,
            machine_->Allocate(thread_, arrays_++, sizeof(T), count)};
  }
  // The same array, whose address compilers keep in a register. All lanes call.
  template <typename T>
  Shared<T> Kept(const Shared<T>& array) {
    return array;
  }
  void Sync(int line = __builtin_LINE()) { machine_->SyncBlock(thread_, line); }
  void SyncWarp(int line = __builtin_LINE()) {
    machine_->SyncWarp(thread_, line);
  }
  template <typename T>
  T ShuffleXor(T value, int mask, int line = __builtin_LINE()) {
    return Shuffle(value, lane() ^ mask, line);
  }
  template <typename T>
  T Shuffle(T value, int from, int line = __builtin_LINE()) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    word = Exchange(&Machine::Words, word, line)[from];
    std::memcpy(&value, &word, sizeof(T));
    return value;
  }
  // Bit n: the vote of lane n.
  uint32_t Ballot(bool vote, int line = __builtin_LINE()) {
    const uint64_t* const of_warp =
        Exchange(&Machine::Words, uint64_t{vote}, line);
    uint32_t votes = 0;
    for (int i = 0; i < kWarpLanes; ++i) {
      votes |= static_cast<uint32_t>(of_warp[i]) << i;
    }
    return votes;
  }
  // A warp calls: whether its block is the last of `blocks` to arrive. What the
  // others' warps stored before is there then, and the counter is 0 again.
  bool ArriveLast(uint32_t* arrived, uint32_t blocks,
                  int line = __builtin_LINE()) {
    machine_->SyncWarp(thread_, line);
    const uint32_t before = Shuffle(*arrived, 0, line);
    if (lane() == 0) *arrived = (before + 1) % blocks;
    return before + 1 == blocks;
  }
  // The largest, and the smallest, of the lanes' values.
  uint32_t Most(uint32_t value, int line = __builtin_LINE()) {
    for (int mask = 16; mask > 0; mask /= 2) {
      value = std::max(value, ShuffleXor(value, mask, line));
    }
    return value;
  }
  uint32_t Least(uint32_t value, int line = __builtin_LINE()) {
    return ~Most(~value, line);
  }
  // What kernels before this one wrote is there once this returns.
  void WaitForInputs() { machine_->WaitForInputs(thread_); }
  // Asks for a multiple of 16 bytes to come near; `from` is aligned so. Here
  // nothing comes, but the memory has to be there.
  void Prefetch(const void* from, int bytes) {
    SLUICE_CHECK(reinterpret_cast<uintptr_t>(from) % 16 == 0);
    SLUICE_CHECK(bytes > 0 && bytes % 16 == 0);
    const auto* const at = static_cast<const volatile char*>(from);
    (void)at[0], (void)at[bytes - 1];
  }
  // c += a b, of the whole warp. Here products are exact, and F64 sums them in
  // rising k onto c, rounded once; the order inside a GPU's instruction is the
  // GPU's own.
  void MultiplyTile(const TileA& a, const TileB& b, TileC& c,
                    int line = __builtin_LINE()) {
    const TileWords* const of_warp =
        Exchange(&Machine::Tiles, TileWords{a, b}, line);
    const int g = lane() / 4;
    const int t = lane() % 4;
    float rows[2][16];
    float columns[2][16];
    for (int k = 0; k < 16; ++k) {
      const int place = k % 8 / 2;
      for (int i = 0; i < 2; ++i) {
        const TileWords& of_row = of_warp[g * 4 + place];
        rows[i][k] = Bf16Half(of_row.a.words[i + k / 8 * 2], k % 2);
        const TileWords& of_column = of_warp[(2 * t + i) * 4 + place];
        columns[i][k] = Bf16Half(of_column.b.words[k / 8], k % 2);
      }
    }
    for (int i = 0; i < 4; ++i) {
      double sum = c.values[i];
      for (int k = 0; k < 16; ++k) {
        sum += static_cast<double>(rows[i / 2][k]) *
               static_cast<double>(columns[i % 2][k]);
      }
      c.values[i] = static_cast<float>(sum);
    }
  }
  // The same onto zeros.
  TileC TileProduct(const TileA& a, const TileB& b,
                    int line = __builtin_LINE()) {
    TileC c = {};
    MultiplyTile(a, b, c, line);
    return c;
  }
  void MultiplyCodes(const TileA& a, const TileB& b, TileI& c,
                     int line = __builtin_LINE()) {
    const TileWords* const of_warp =
        Exchange(&Machine::Tiles, TileWords{a, b}, line);
    const int g = lane() / 4;
    const int t = lane() % 4;
    for (int i = 0; i < 4; ++i) {
      uint32_t sum = static_cast<uint32_t>(c.values[i]);
      for (int k = 0; k < 32; ++k) {
        const int place = k % 16 / 4;
        const TileWords& of_row = of_warp[g * 4 + place];
        const TileWords& of_column = of_warp[(2 * t + i % 2) * 4 + place];
        const uint32_t row = of_row.a.words[i / 2 + k / 16 * 2];
        const uint32_t column = of_column.b.words[k / 16];
        const int32_t product = static_cast<uint8_t>(row >> (k % 4 * 8)) *
                                static_cast<int8_t>(column >> (k % 4 * 8));
        sum += static_cast<uint32_t>(product);
      }
      c.values[i] = static_cast<int32_t>(sum);
    }
  }
  // kBytes (16, 8 or 4) of `from` to `to` from element `at` on, once WaitCopies
  // is called; both ends are aligned to them. What was there is gone. `from` is
  // read late, but before what the block waits for as its inputs.
  template <int kBytes = 16, typename T>
  void CopyAsync(const Shared<T>& to, int64_t at, const T* from) {
    constexpr int kCount = kBytes / sizeof(T);
    static_assert(kBytes == 16 || kBytes == 8 || kBytes == 4);
    CheckAligned(from, kBytes);
    CheckAligned<T>(at, kBytes);
    for (int i = 0; i < kCount; ++i) to.Take(at + i);
    if (machine_->is_early()) {
      std::array<T, kCount> read;
      std::copy_n(from, kCount, read.begin());
      copies_.push_back([to, at, read] {
        for (int i = 0; i < kCount; ++i) to.Arrive(at + i, read[i]);
      });
      return;
    }
    copies_.push_back([to, at, from] {
      for (int i = 0; i < kCount; ++i) to.Arrive(at + i, from[i]);
    });
  }
  // The thread's own copies are done; others see them behind a barrier.
  void WaitCopies() {
    for (const auto& copy : copies_) copy();
    copies_.clear();
    groups_.clear();
  }
  // The thread's copies since the last call are a group, if of none.
  void CommitCopies() { groups_.push_back(copies_.size()); }
  // As WaitCopies, for all groups but the last kGroups.
  template <int kGroups>
  void WaitCopies() {
    if (groups_.size() <= kGroups) return;
    const size_t done = groups_.size() - kGroups;
    const size_t count = groups_[done - 1];
    for (size_t i = 0; i < count; ++i) copies_[i]();
    copies_.erase(copies_.begin(),
                  copies_.begin() + static_cast<std::ptrdiff_t>(count));
    groups_.erase(groups_.begin(),
                  groups_.begin() + static_cast<std::ptrdiff_t>(done));
    for (size_t& end : groups_) end -= count;
  }
  // The thread did what a GPU leaves undefined.
  void Fault(const char* what) { machine_->Fault(thread_, what); }
  Machine& machine() { return *machine_; }

 private:
  // What every lane of the warp hands over.
  template <typename T>
  const T* Exchange(T* (Machine::*places)(int turn), const T& own, int line) {
    turn_ ^= 1;
    T* const words = (machine_->*places)(turn_);
    words[thread_] = own;
    machine_->Meet(thread_, line);
    return words + thread_ - lane();
  }

  Machine* machine_;
  int thread_;
  int arrays_ = 0;
  int turn_ = 0;  // of the warp's exchanges
  std::vector<std::function<void()>> copies_;
  std::vector<size_t> groups_;  // where each ends in copies_
};

SLUICE_DEVICE float Fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
SLUICE_DEVICE float SquareRoot(float x) { return __builtin_sqrtf(x); }
// 2^x to 2^-22 of itself, as near as the device has it; 0 below -126.
SLUICE_DEVICE float PowerOf2(float x) {
  return x < -126.0f ? 0.0f : __builtin_exp2f(x);
}
template <typename To, typename From>
SLUICE_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}
// sum plus the four products of an unsigned byte of a and a signed one of b.
SLUICE_DEVICE int32_t DotBytes(int32_t sum, uint32_t a, uint32_t b) {
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<int32_t>(a >> (8 * i) & 255u) *
           static_cast<int8_t>(b >> (8 * i) & 255u);
  }
  return sum;
}

// The same pointer or number; a compiler computes what follows from it behind
// the call, and keeps nothing of it in registers before.
template <typename T>
SLUICE_DEVICE T* ComputedHere(T* pointer) {
  return pointer;
}
SLUICE_DEVICE int ComputedHere(int value) { return value; }

SLUICE_DEVICE int CountBits(uint32_t bits) { return __builtin_popcount(bits); }
// The lower, or upper, halves of two words as a pair, a's below b's.
SLUICE_DEVICE uint32_t LowerHalves(uint32_t a, uint32_t b) {
  return (a & 0xFFFFu) | b << 16;
}
SLUICE_DEVICE uint32_t UpperHalves(uint32_t a, uint32_t b) {
  return a >> 16 | (b & 0xFFFF0000u);
}
// The F16 number in a word's lower half.
SLUICE_DEVICE float LowerHalfAsFloat(uint32_t word) {
  const uint32_t magnitude = (word & 0x7FFFu) << 13;
  const float value = magnitude >= 0x0F800000u
                          ? BitCast<float>(magnitude | 0x7F800000u)
                          : BitCast<float>(magnitude) * 0x1p112f;
  return (word & 0x8000u) != 0 ? -value : value;
}
// `base`, and those of `bits` that kMask has.
template <uint32_t kMask>
SLUICE_DEVICE uint32_t WithBits(uint32_t base, uint32_t bits) {
  return base | (bits & kMask);
}
// Byte i of the result: the one of a, then b, that four bits from 4 * i on of
// `places` name, which are at most 7.
SLUICE_DEVICE uint32_t PickBytes(uint32_t a, uint32_t b, uint32_t places) {
  const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t place = places >> (4 * i) & 7u;
    picked |= static_cast<uint32_t>(bytes >> (8 * place) & 255u) << (8 * i);
  }
  return picked;
}
// The larger; the other if one is NaN.
SLUICE_DEVICE float Larger(float a, float b) { return __builtin_fmaxf(a, b); }

// Four bytes, aligned.
SLUICE_DEVICE uint32_t LoadWord(const void* from) {
  uint32_t word;
  std::memcpy(&word, CheckAligned(from, 4), sizeof(word));
  return word;
}

// Sixteen bytes, aligned.
SLUICE_DEVICE TileA LoadTile(const void* from) {
  TileA words;
  std::memcpy(&words, CheckAligned(from, 16), sizeof(words));
  return words;
}
// Eight bytes, aligned.
SLUICE_DEVICE TileB LoadHalfTile(const void* from) {
  TileB words;
  std::memcpy(&words, CheckAligned(from, 8), sizeof(words));
  return words;
}
// The same of shared memory, from element `at` on.
SLUICE_DEVICE TileA LoadTile(const Shared<uint32_t>& from, int64_t at) {
  CheckAligned<uint32_t>(at, 16);
  return {{from.Get(at), from.Get(at + 1), from.Get(at + 2), from.Get(at + 3)}};
}
SLUICE_DEVICE TileB LoadHalfTile(const Shared<uint32_t>& from, int64_t at) {
  CheckAligned<uint32_t>(at, 8);
  return {{from.Get(at), from.Get(at + 1)}};
}
SLUICE_DEVICE Quad LoadQuad(const float* from) {
  Quad floats;
  std::memcpy(&floats, CheckAligned(from, 16), sizeof(floats));
  return floats;
}
SLUICE_DEVICE Quad LoadQuad(const Shared<float>& from, int64_t at) {
  CheckAligned<float>(at, 16);
  return {{from.Get(at), from.Get(at + 1), from.Get(at + 2), from.Get(at + 3)}};
}
SLUICE_DEVICE void StoreQuad(const Shared<float>& to, int64_t at,
                             const Quad& floats) {
  CheckAligned<float>(at, 16);
  for (int i = 0; i < 4; ++i) to.Set(at + i, floats.values[i]);
}
SLUICE_DEVICE void StoreQuad(float* to, const Quad& floats) {
  std::memcpy(CheckAligned(to, 16), &floats, sizeof(floats));
}
SLUICE_DEVICE void StoreHalfTile(void* to, const TileB& words) {
  std::memcpy(CheckAligned(to, 8), &words, sizeof(words));
}

// The nearest BF16 numbers, ties to even; a NaN stays one.
SLUICE_DEVICE uint32_t PackPair(float lower, float upper) {
  const auto round = [](float value) -> uint32_t {
    const auto bits = BitCast<uint32_t>(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  };
  return round(lower) | round(upper) << 16;
}
// a - b of two BF16 numbers each, rounded as PackPair does.
SLUICE_DEVICE uint32_t SubtractPairs(uint32_t a, uint32_t b) {
  return PackPair(Bf16Half(a, 0) - Bf16Half(b, 0),
                  Bf16Half(a, 1) - Bf16Half(b, 1));
}
// The products of two BF16 numbers each, rounded as PackPair does.
SLUICE_DEVICE uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  return PackPair(Bf16Half(a, 0) * Bf16Half(b, 0),
                  Bf16Half(a, 1) * Bf16Half(b, 1));
}

// Where kernels run, in order.
using Stream = Machine*;

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_CUDA_DEVICE_DEVICE_H_
