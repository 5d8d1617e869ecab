#include "common/tools/measure/machine.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <thread>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "kernels/context.h"

namespace sluice::measure {
namespace {

// What the first processor's line `key` says.
std::string CpuLine(std::string_view key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with(key) && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace

std::string DescribeCpu() {
  return Cat("CPU: ", CpuLine("model name"), ", ",
             std::thread::hardware_concurrency(),
             " cores\nflags: ", CpuLine("flags"), "\n");
}

ReadProbe::ReadProbe(int threads, int megabytes)
    : team_({.num_threads = threads}),
      words_(static_cast<size_t>(megabytes) << 17, 1) {}

double ReadProbe::Measure() {
  const int threads = team_.num_threads();
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  const TimePoint start = Clock::now();
  kernels::ParallelFor({&team_}, threads, [&](int part) {
    const uint64_t* words = words_.data();
    const auto size = static_cast<int64_t>(words_.size());
    const int64_t end = size * (part + 1) / threads;
    uint64_t sum[8] = {};
    for (int64_t i = size * part / threads; i + 8 <= end; i += 8) {
      for (int j = 0; j < 8; ++j) sum[j] += words[i + j];
    }
    for (const uint64_t value : sum) sums[static_cast<size_t>(part)] += value;
  });
  const double seconds = Seconds(Clock::now() - start);
  for (const uint64_t sum : sums) sink_ = sink_ + sum;
  return static_cast<double>(words_.size()) * 8e-9 / seconds;
}

std::string ReadProbe::Describe(int passes) {
  double best = 0;
  for (int i = 0; i < passes; ++i) best = std::max(best, Measure());
  char line[128];
  std::snprintf(line, sizeof(line),
                "read bandwidth: %.2f GB/s, %d threads, best of %d passes over "
                "%zu MiB\n",
                best, team_.num_threads(), passes, words_.size() >> 17);
  return line;
}

}  // namespace sluice::measure
