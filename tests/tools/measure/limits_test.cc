#include "common/tools/measure/limits.h"

#include <gtest/gtest.h>

namespace sluice::measure {
namespace {

// A clock that moves a second at every look.
double Ticks() {
  static double now = 0;
  return now += 1;
}

void DoNothing(int64_t) {}

TEST(LimitsTest, RatesAreOfWholePagesAndOfEveryThreadsOperations) {
  ThreadTeam team({.num_threads = 2, .cpus = {}, .name = "test"});
  const std::vector<uint8_t> memory(3 * 4096 + 100, 1);
  EXPECT_DOUBLE_EQ(ReadRate({nullptr, Ticks}, memory), 3 * 4096e-9);
  EXPECT_DOUBLE_EQ(ReadRate({&team, Ticks}, memory), 3 * 4096e-9);
  EXPECT_DOUBLE_EQ(PeakRate({nullptr, Ticks}, {DoNothing, 10}), 200000 * 10e-9);
  EXPECT_DOUBLE_EQ(PeakRate({&team, Ticks}, {DoNothing, 10}), 200000 * 20e-9);
  EXPECT_EQ(PeakRate({&team, Ticks}, {}), 0);
  EXPECT_EQ(JoinSeconds({nullptr, Ticks}), 0);
  EXPECT_GT(JoinSeconds({&team, Ticks}), 0);
}

TEST(LimitsTest, AProbeFindsEveryLimitOfThisCpu) {
  const kernels::Isa isa = kernels::DetectIsa();
  const Limits limits = LimitProbe({2, kernels::DotIsaFor(isa), isa}).Measure();
  EXPECT_GT(limits.read_one, 0);
  EXPECT_GT(limits.read_all, 0);
  EXPECT_GT(limits.join_seconds, 0);
  const bool vectors = isa != kernels::Isa::kPortable;
  EXPECT_EQ(limits.dot_peak > 0, vectors);
  EXPECT_EQ(limits.fma_peak > 0, vectors);
}

}  // namespace
}  // namespace sluice::measure
