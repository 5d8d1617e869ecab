#ifndef SLUICE_COMMON_TOOLS_MEASURE_LIMITS_H_
#define SLUICE_COMMON_TOOLS_MEASURE_LIMITS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "kernels/block_matmul.h"
#include "kernels/context.h"

// Limits of this machine that a kernel's rate is a share of: reading memory and
// computing in registers.
namespace sluice::measure {

// Returns seconds of some past moment: the steady clock's.
double SteadySeconds();

// Reads memory with the widest vectors and prefetches of this CPU, one stream.
void ReadBytes(const uint8_t* from, int64_t bytes);

// A loop in registers: run(n) does n * operations of them (a multiplication or
// an addition each). Null where an instruction set has no such loop.
struct PeakWork {
  void (*run)(int64_t rounds) = nullptr;
  int64_t operations = 0;
};
// Products of bytes. VNNI sets: vpdpbusd. Others: vpmaddubsw and the addition
// of words. Null for the portable set.
PeakWork PeakOf(kernels::DotIsa isa);
// Fused multiply-adds of F32. Null for the portable set.
PeakWork FmaPeakOf(kernels::Isa isa);

// Who computes, and by which clock: null executor, the calling thread.
struct Measurer {
  kernels::Executor* executor = nullptr;
  double (*seconds)() = SteadySeconds;
};

// Returns GB/s (10^9 bytes) of one pass over `memory`, each thread a part of
// its own in whole pages.
double ReadRate(const Measurer& measurer, std::span<const uint8_t> memory);

// Returns Gop/s of `work` on every thread at once; 0 for null work.
double PeakRate(const Measurer& measurer, const PeakWork& work);

// Returns seconds of one fork and join of the executor's threads without work,
// the best of some runs.
double JoinSeconds(const Measurer& measurer);

// What one round of measuring found; 0: not measurable.
struct Limits {
  double read_one = 0;  // GB/s of the calling thread
  double read_all = 0;  // GB/s of all threads
  double dot_peak = 0;  // Gop/s of byte products, all threads
  double fma_peak = 0;  // Gop/s of fused multiply-adds, all threads
  double join_seconds = 0;
};

// The instruction sets and the number of threads that limits are of.
struct LimitOptions {
  int threads = 1;
  kernels::DotIsa dot = kernels::DotIsa::kPortable;
  kernels::Isa vectors = kernels::Isa::kPortable;
};

// Measures all limits with a team of its own, which sleeps in between, and
// memory of its own that no cache holds. For one thread.
class LimitProbe {
 public:
  explicit LimitProbe(const LimitOptions& options);

  // The best of a few passes.
  Limits Measure();

 private:
  const LimitOptions options_;
  ThreadTeam team_;
  const std::vector<uint8_t> memory_;
};

}  // namespace sluice::measure

#endif  // SLUICE_COMMON_TOOLS_MEASURE_LIMITS_H_
