#ifndef SLUICE_COMMON_TOOLS_MEASURE_MACHINE_H_
#define SLUICE_COMMON_TOOLS_MEASURE_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/concurrency/thread_team.h"

// What a figure means nothing without: the CPU, and how fast it reads memory.
namespace sluice::measure {

// "CPU: NAME, N cores" and "flags: ...", a line each; "unknown" where
// /proc/cpuinfo does not tell.
std::string DescribeCpu();

// Reads a buffer that no cache holds from end to end, with a team of its own,
// which sleeps between passes. For one thread at a time.
class ReadProbe {
 public:
  // Takes `megabytes` (of 2^20 bytes) of memory; both positive.
  explicit ReadProbe(int threads, int megabytes = 512);

  // GB/s (10^9 bytes) of one pass.
  double Measure();

  // The best of `passes` as "read bandwidth: 31.20 GB/s, 2 threads, ...", a
  // line that machine.py reads.
  std::string Describe(int passes);

 private:
  ThreadTeam team_;
  std::vector<uint64_t> words_;
  volatile uint64_t sink_ = 0;  // so that no pass is left out
};

}  // namespace sluice::measure

#endif  // SLUICE_COMMON_TOOLS_MEASURE_MACHINE_H_
