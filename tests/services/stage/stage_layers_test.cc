#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "services/stage/stage_server.h"

namespace sluice::stage {
namespace {

using ::testing::HasSubstr;

LayerLoads Equal(int32_t layers) {
  LayerLoads loads;
  loads.layers.assign(static_cast<size_t>(layers), 10);
  return loads;
}

TEST(ResolveLayersTest, APartOfASplitIsTheOneOfItsIndex) {
  LayerLoads loads = Equal(5);
  const auto part = [&](int32_t index, std::vector<uint64_t> memory) {
    const auto range = ResolveLayers({0, -1, index, 2, memory}, loads);
    EXPECT_TRUE(range.ok()) << range.status();
    return range.ok() ? *range : LayerRange();
  };
  EXPECT_EQ(part(0, {}), (LayerRange{0, 3}));
  EXPECT_EQ(part(1, {}), (LayerRange{3, 5}));
  EXPECT_EQ(part(1, {100, 400}), (LayerRange{1, 5}));
  loads.embedding = 30;
  EXPECT_EQ(part(1, {}), (LayerRange{1, 5}));
}

TEST(ResolveLayersTest, NothingAskedForIsEveryLayer) {
  const auto all = ResolveLayers({}, Equal(30));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->first, 0);
  EXPECT_EQ(all->last, 30);
}

TEST(ResolveLayersTest, LayersThatDoNotExistAreRefused) {
  EXPECT_THAT(Message(ResolveLayers({3, 10}, Equal(5)).status()),
              HasSubstr("layers 3 to 9: the model has layers 0 to 4"));
  EXPECT_FALSE(ResolveLayers({-1, 2}, Equal(5)).ok());
  EXPECT_FALSE(ResolveLayers({2, 2}, Equal(5)).ok());
  EXPECT_THAT(Message(ResolveLayers({0, -1, 0, 6}, Equal(5)).status()),
              HasSubstr("6 stages for 5 layers"));
  EXPECT_FALSE(ResolveLayers({0, -1, 2, 2}, Equal(5)).ok());
  EXPECT_FALSE(ResolveLayers({0, -1, -1, 2}, Equal(5)).ok());
}

}  // namespace
}  // namespace sluice::stage
