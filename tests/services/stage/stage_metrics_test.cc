#include "common/pipeline/stage/stage_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/metrics/metrics.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

TEST(StageMetricsTest, TimesInCollectivesAreThoseOfStepsThatWereMeasured) {
  metrics::Registry registry;
  StageMetrics metrics(&registry);
  StageInfo info;
  info.ranks = 2;
  metrics.OnLoaded(info);
  StepOutput step;
  step.plan.chunks.resize(1);
  step.ranks = {{.reduce_ns = 3 * kSecond,
                 .gather_ns = kSecond,
                 .wait_ns = kSecond,
                 .device_wait_ns = 2 * kSecond},
                {.reduce_ns = 2 * kSecond, .wait_ns = kSecond}};
  metrics.OnStep(step);
  step.ranks[0] = {.wait_ns = 4 * kSecond, .measured = false};
  metrics.OnStep(step);
  const std::string text = registry.Text();
  for (const char* line :
       {"sluice_stage_collective_seconds_count{op=\"reduce\"} 1\n",
        "sluice_stage_collective_seconds_sum{op=\"reduce\"} 3\n",
        "sluice_stage_collective_seconds_count{op=\"gather\"} 1\n",
        "sluice_stage_collective_seconds_sum{op=\"gather\"} 1\n",
        "sluice_stage_wait_seconds_count{for=\"collective\"} 2\n",
        "sluice_stage_wait_seconds_sum{for=\"collective\"} 6\n",
        "sluice_stage_rank_wait_seconds_total{tp_rank=\"0\"} 6\n",
        "sluice_stage_rank_wait_seconds_total{tp_rank=\"1\"} 2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace sluice
