#include "services/stage/watched_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/metrics/metrics.h"
#include "common/nvml/nvml_library.h"

namespace sluice::stage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(WatchedGpusTest, ReadingsAreSeriesByGpu) {
  metrics::Registry registry;
  StageMetrics metrics(&registry);
  metrics.OnGpus({"GPU-a", "GPU-b"}, {{5, 80, 0.25, 0, 1}, {7, 40, 0.5, 2, 0}});
  metrics.OnGpus({"GPU-a", "GPU-b"}, {{6, 80, 0.75, 0, 3}, {7, 40, 0.5, 2, 0}});
  const std::string text = registry.Text();
  for (const char* line :
       {"sluice_stage_gpu_memory_used_bytes{gpu=\"GPU-a\"} 6\n",
        "sluice_stage_gpu_memory_total_bytes{gpu=\"GPU-b\"} 40\n",
        "sluice_stage_gpu_busy_ratio{gpu=\"GPU-a\"} 0.75\n",
        "sluice_stage_gpu_ecc_errors_total{gpu=\"GPU-b\"} 2\n",
        "sluice_stage_gpu_xid_errors_total{gpu=\"GPU-a\"} 3\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(WatchedGpusTest, OnACpuAndWithoutNvmlThereAreNoSeries) {
  metrics::Registry registry;
  StageMetrics metrics(&registry);
  WatchedGpus gpus;
  gpus.Start({});
  gpus.CopyTo(metrics);
  EXPECT_THAT(registry.Text(), Not(HasSubstr("sluice_stage_gpu_")));
  if (NvmlLibrary::Load().ok()) GTEST_SKIP() << "this machine has NVML";
  gpus.Start({"GPU-1"});
  gpus.CopyTo(metrics);
  EXPECT_THAT(registry.Text(), Not(HasSubstr("sluice_stage_gpu_")));
}

}  // namespace
}  // namespace sluice::stage
