#include <string>

#include "common/base/check.h"
#include "kernels/cuda/runtime/runtime.h"
#include "tests/cuda_machine/probes/memory_passes.h"
#include "tests/gpu/bandwidth.h"
#include "tests/gpu/gpu_runs.h"

namespace sluice::testing {
namespace {

namespace cuda = kernels::cuda;

constexpr int64_t kBytes = int64_t{1} << 31;
constexpr int64_t kFloats = kBytes / 4;

constexpr int kRounds = 10;

}  // namespace

Json GpuBandwidth(const std::string& gpu) {
  const auto runtime = OpenGpu(gpu);
  auto* const from = static_cast<float*>(runtime->Allocate(kBytes));
  auto* const to = static_cast<float*>(runtime->Allocate(kBytes));
  auto* const sums = static_cast<float*>(
      runtime->Allocate(cuda::kStreamThreads * sizeof(float)));
  SLUICE_CHECK(from != nullptr && to != nullptr && sums != nullptr);
  const cuda::Stream stream = runtime->stream();
  const double read = BestSeconds(*runtime, kRounds, 4, [&] {
    cuda::ReadAll(stream, from, kFloats, sums);
  });
  const double copy = BestSeconds(
      *runtime, kRounds, 4, [&] { cuda::CopyAll(stream, from, kFloats, to); });
  const double launch =
      BestSeconds(*runtime, kRounds, 1000, [&] { cuda::DoNothing(stream); });
  for (float* data : {from, to, sums}) runtime->Free(data);
  return {{"name", runtime->facts().name},
          {"total_memory", runtime->facts().total_memory},
          {"read_gb_per_s", kBytes / read * 1e-9},
          {"copy_gb_per_s", 2 * kBytes / copy * 1e-9},
          {"launch_us", launch * 1e6}};
}

}  // namespace sluice::testing
