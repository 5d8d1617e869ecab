#ifndef SLUICE_TESTS_GPU_GPU_RUNS_H_
#define SLUICE_TESTS_GPU_GPU_RUNS_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice::testing {

// Opens a GPU that is there, by its number or id.
inline std::unique_ptr<kernels::cuda::Runtime> OpenGpu(const std::string& gpu) {
  using kernels::cuda::Runtime;
  std::string error;
  const bool is_id = gpu.find('-') != std::string::npos;
  const int index = is_id ? Runtime::Find(gpu, &error) : std::stoi(gpu);
  auto runtime = Runtime::Open(index, &error);
  SLUICE_CHECK(runtime != nullptr);
  return runtime;
}

// Returns the seconds of work() in the best of `rounds`, in each of which it is
// called `times` times, and then waited for.
inline double BestSeconds(kernels::cuda::Runtime& runtime, int rounds,
                          int times, const std::function<void()>& work) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const int64_t start = MonotonicNanos();
    for (int i = 0; i < times; ++i) work();
    runtime.Sync();
    best = std::min(best, static_cast<double>(MonotonicNanos() - start) * 1e-9);
  }
  return best / times;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_GPU_GPU_RUNS_H_
