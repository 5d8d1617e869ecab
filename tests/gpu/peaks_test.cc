// What tests/gpu/run measures of a GPU's peaks, on the emulated device: that
// the results are looked at, and that lists become graphs. Its times say
// nothing.
#include "tests/gpu/peaks.h"

#include <gtest/gtest.h>

#include "tests/gpu/gpu_runs.h"

namespace sluice::testing {
namespace {

const PeakSizes kSmall = {.rounds = 3, .again = 2, .times = 3, .launches = 7};

TEST(PeaksTest, EveryPeakIsMeasuredAndComputedRightly) {
  const auto runtime = OpenGpu("0");
  int tflops = 0;
  int tops = 0;
  int launches = 0;
  for (const std::string& name : PeakNames()) {
    SCOPED_TRACE(name);
    const Json found = PeakOf(*runtime, name, kSmall);
    EXPECT_TRUE(found.at("as_computed").get<bool>());
    tflops += found.value("tflops", 0.0) > 0 ? 1 : 0;
    tops += found.value("tops", 0.0) > 0 ? 1 : 0;
    if (!found.contains("blocks")) continue;
    ++launches;
    EXPECT_GT(found.at("eager_us").get<double>(), 0);
    EXPECT_GT(found.at("graph_us").get<double>(), 0);
    for (const char* list : {"1", "3", "7"}) {
      const Json& alone = found.at("lists").at(list);
      EXPECT_GE(alone.at("us").get<double>(),
                alone.at("host_us").get<double>());
    }
  }
  EXPECT_EQ(tflops, 2);
  EXPECT_EQ(tops, 1);
  EXPECT_EQ(launches, 2);
}

// Lists of two become no graphs: what is told of them is not of graphs.
TEST(PeaksTest, ListsThatAreNotReplayedAreNotAsTheyMustBe) {
  const auto runtime = OpenGpu("0");
  PeakSizes sizes = kSmall;
  sizes.launches = 2;
  EXPECT_FALSE(PeakOf(*runtime, "launches of 1 block", sizes)
                   .at("as_computed")
                   .get<bool>());
}

// As many products as F32 has no exact sum of end the process.
TEST(PeaksDeathTest, SumsThatAreNotExactAreRefused) {
  PeakSizes sizes = kSmall;
  sizes.times = (1 << 15) + 1;
  EXPECT_DEATH(PeakOf(*OpenGpu("0"), "BF16 products, mma.sync", sizes),
               "kMostRateTimes");
}

}  // namespace
}  // namespace sluice::testing
