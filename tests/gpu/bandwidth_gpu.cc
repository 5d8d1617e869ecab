#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/streams.h"
#include "tests/gpu/bandwidth.h"

namespace sluice::testing {
namespace {

namespace cuda = kernels::cuda;

constexpr int64_t kBytes = int64_t{1} << 31;
constexpr int64_t kFloats = kBytes / 4;

double BestSeconds(cuda::Runtime& runtime, int times,
                   const std::function<void()>& work) {
  constexpr int kRounds = 10;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start = MonotonicNanos();
    for (int i = 0; i < times; ++i) work();
    runtime.Sync();
    best = std::min(best, static_cast<double>(MonotonicNanos() - start) * 1e-9);
  }
  return best / times;
}

}  // namespace

Json GpuBandwidth(const std::string& gpu) {
  std::string error;
  const bool is_id = gpu.find('-') != std::string::npos;
  const int index = is_id ? cuda::Runtime::Find(gpu, &error) : std::stoi(gpu);
  const auto runtime = cuda::Runtime::Open(index, &error);
  SLUICE_CHECK(runtime != nullptr);
  auto* const from = static_cast<float*>(runtime->Allocate(kBytes));
  auto* const to = static_cast<float*>(runtime->Allocate(kBytes));
  auto* const sums = static_cast<float*>(
      runtime->Allocate(cuda::kStreamThreads * sizeof(float)));
  SLUICE_CHECK(from != nullptr && to != nullptr && sums != nullptr);
  const cuda::Stream stream = runtime->stream();
  const double read = BestSeconds(
      *runtime, 4, [&] { cuda::ReadAll(stream, from, kFloats, sums); });
  const double copy = BestSeconds(
      *runtime, 4, [&] { cuda::CopyAll(stream, from, kFloats, to); });
  const double launch =
      BestSeconds(*runtime, 1000, [&] { cuda::DoNothing(stream); });
  for (float* data : {from, to, sums}) runtime->Free(data);
  return {{"name", runtime->facts().name},
          {"total_memory", runtime->facts().total_memory},
          {"read_gb_per_s", kBytes / read * 1e-9},
          {"copy_gb_per_s", 2 * kBytes / copy * 1e-9},
          {"launch_us", launch * 1e6}};
}

}  // namespace sluice::testing
