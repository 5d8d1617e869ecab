#include "tests/device/cuda/row_bits.h"

#include <gtest/gtest.h>

#include "tests/device/cuda/device_backends.h"

namespace sluice::testing {
namespace {

using kernels::WeightType;

TEST(RowBitsTest, RowsOfManyTokensHaveTheirOwnBits) {
  SLUICE_REQUIRE_DEVICE();
  BackendOptions options;
  options.threads = 1;
  auto backends = DeviceBackends(Turns::kForward, Numerics::kFast)(options);
  ASSERT_TRUE(backends.ok()) << backends.status();
  RowBitsSizes sizes = LargeRowBits();
  sizes.tokens = {2, 9};
  sizes.plain_cols = {256, 20};
  sizes.block_cols = {256};
  sizes.types = {WeightType::kBf16, WeightType::kE4m3, WeightType::kE4m3Wide,
                 WeightType::kMxfp4, WeightType::kQ4K};
  sizes.rows = 48;
  sizes.experts = 4;
  Json all = Json::array();
  EXPECT_TRUE(RowsHaveTheirOwnBits(*(*backends)[0], sizes, all));
  EXPECT_FALSE(all.empty());
  for (const Json& one : all) {
    EXPECT_TRUE(one.value("same_bits", true) && one.value("finite", true))
        << one.dump();
  }
}

}  // namespace
}  // namespace sluice::testing
