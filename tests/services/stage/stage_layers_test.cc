#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/stage/stage_server.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(ResolveLayersTest, AnEvenSplitCoversEveryLayerOnceLongerPartsFirst) {
  for (int32_t layers = 1; layers <= 40; ++layers) {
    for (int32_t parts = 1; parts <= layers; ++parts) {
      int32_t next = 0;
      int32_t size = layers;
      for (int32_t i = 0; i < parts; ++i) {
        const auto range = ResolveLayers({0, -1, i, parts}, layers);
        ASSERT_TRUE(range.ok()) << range.status();
        EXPECT_EQ(range->first, next);
        EXPECT_LE(range->last - range->first, size);
        size = range->last - range->first;
        EXPECT_GE(size, layers / parts);
        next = range->last;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(ResolveLayersTest, NothingAskedForIsEveryLayer) {
  const auto all = ResolveLayers({}, 30);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->first, 0);
  EXPECT_EQ(all->last, 30);
}

TEST(ResolveLayersTest, LayersThatDoNotExistAreRefused) {
  EXPECT_THAT(Message(ResolveLayers({3, 10, 0, 0}, 5).status()),
              HasSubstr("layers 3 to 9: the model has layers 0 to 4"));
  EXPECT_FALSE(ResolveLayers({-1, 2, 0, 0}, 5).ok());
  EXPECT_FALSE(ResolveLayers({2, 2, 0, 0}, 5).ok());
  EXPECT_THAT(Message(ResolveLayers({0, -1, 0, 6}, 5).status()),
              HasSubstr("6 stages for 5 layers"));
  EXPECT_FALSE(ResolveLayers({0, -1, 2, 2}, 5).ok());
  EXPECT_FALSE(ResolveLayers({0, -1, -1, 2}, 5).ok());
}

}  // namespace
}  // namespace sluice
