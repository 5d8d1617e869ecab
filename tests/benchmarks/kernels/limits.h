#ifndef SLUICE_TESTS_BENCHMARKS_KERNELS_LIMITS_H_
#define SLUICE_TESTS_BENCHMARKS_KERNELS_LIMITS_H_

#include <cstdint>

#include "kernels/block_matmul.h"
#include "kernels/context.h"

namespace sluice::benchmarks {

// Reads memory with the widest vectors and prefetches of this CPU, one stream.
void ReadBytes(const uint8_t* from, int64_t bytes);

// A loop of byte products in registers: run(n) does n * operations of them
// (a multiplication or an addition each). VNNI sets: vpdpbusd. Others:
// vpmaddubsw and the addition of words. Null for the portable set.
struct PeakWork {
  void (*run)(int64_t rounds) = nullptr;
  int64_t operations = 0;
};
PeakWork PeakOf(kernels::DotIsa isa);

// The same of fused multiply-adds of F32. Null for the portable set.
PeakWork FmaPeakOf(kernels::Isa isa);

}  // namespace sluice::benchmarks

#endif  // SLUICE_TESTS_BENCHMARKS_KERNELS_LIMITS_H_
