#include "common/placement/layer_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "common/placement/layer_loads.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

LayerLoads Layers(std::vector<uint64_t> bytes) {
  LayerLoads loads;
  loads.layers = std::move(bytes);
  return loads;
}

// How many layers each stage has; checks that they are all of them, in order.
std::vector<int32_t> Sizes(const LayerLoads& loads, int32_t stages,
                           const std::vector<uint64_t>& memory = {}) {
  const auto ranges = SplitLayers(loads, stages, memory);
  EXPECT_TRUE(ranges.ok()) << ranges.status();
  std::vector<int32_t> sizes;
  if (!ranges.ok()) return sizes;
  int32_t next = 0;
  for (const LayerRange& range : *ranges) {
    EXPECT_EQ(range.first, next);
    next = range.last;
    sizes.push_back(range.last - range.first);
  }
  EXPECT_EQ(next, loads.num_layers());
  return sizes;
}

using Counts = std::vector<int32_t>;

TEST(SplitLayersTest, EqualLayersAreSplitByCountTheEarlierStagesOneLonger) {
  for (int32_t layers = 1; layers <= 40; ++layers) {
    for (int32_t stages = 1; stages <= layers; ++stages) {
      const LayerLoads loads =
          Layers(std::vector<uint64_t>(static_cast<size_t>(layers), 123457));
      Counts wanted(static_cast<size_t>(stages), layers / stages);
      std::fill_n(wanted.begin(), layers % stages, layers / stages + 1);
      EXPECT_EQ(Sizes(loads, stages), wanted) << layers << " " << stages;
    }
  }
}

TEST(SplitLayersTest, DenseLayersBeforeSparseOnesAreFewBytes) {
  EXPECT_EQ(Sizes(Layers({10, 10, 10, 100, 100, 100, 100}), 2), (Counts{5, 2}));
}

TEST(SplitLayersTest, AnEmbeddingAndAHeadTakeLayersOffTheEnds) {
  LayerLoads loads = Layers(std::vector<uint64_t>(13, 10));
  loads.embedding = 40;
  loads.head = 40;
  EXPECT_EQ(Sizes(loads, 3), (Counts{3, 7, 3}));
  loads.head = 0;
  EXPECT_EQ(Sizes(loads, 2), (Counts{5, 8}));
  // Tied: on both ends, and once where they are one stage.
  loads.tied = true;
  EXPECT_EQ(Sizes(loads, 3), (Counts{3, 7, 3}));
  EXPECT_EQ(loads.Of({0, 13}).weights, 170u);
  EXPECT_EQ(loads.Of({7, 13}).weights, 100u);
}

TEST(SplitLayersTest, KvCacheCountsLikeWeights) {
  LayerLoads loads = Layers({10, 10, 10, 100, 100, 100, 100});
  loads.kv.assign(7, 10000);
  EXPECT_EQ(Sizes(loads, 2), (Counts{4, 3}));
  EXPECT_EQ(loads.Of({3, 5}).kv, 20000u);
  EXPECT_EQ(loads.Of({3, 5}).total(), 20200u);
  loads.kv = {10000, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(Sizes(loads, 2), (Counts{1, 6}));
}

TEST(SplitLayersTest, SharesFollowTheMemory) {
  const LayerLoads loads = Layers(std::vector<uint64_t>(10, 10));
  EXPECT_EQ(Sizes(loads, 2, {400, 100}), (Counts{8, 2}));
  EXPECT_EQ(Sizes(loads, 2, {100, 400}), (Counts{2, 8}));
  EXPECT_EQ(Sizes(loads, 3, {25, 60, 25}), (Counts{2, 6, 2}));
  EXPECT_EQ(Sizes(loads, 2, {50, 50}), (Counts{5, 5}));
}

TEST(SplitLayersTest, WhatCannotBeIsRefusedByName) {
  const LayerLoads loads = Layers({10, 10, 30});
  const auto refusal = [&](int32_t stages, std::vector<uint64_t> memory) {
    const auto split = SplitLayers(loads, stages, memory);
    EXPECT_FALSE(split.ok());
    return Message(split.status());
  };
  EXPECT_EQ(refusal(4, {}), "4 stages for 3 layers: 1 to 3 are possible");
  EXPECT_EQ(refusal(0, {}), "0 stages for 3 layers: 1 to 3 are possible");
  EXPECT_EQ(refusal(2, {1, 2, 3}), "2 stages have 3 sizes of memory");
  EXPECT_THAT(refusal(2, {9, 0}), HasSubstr("stage 1 has no memory"));
  EXPECT_EQ(refusal(2, {40, 20}),
            "stage 1 would have layers 2-2, 30 bytes of weights and 0 of KV "
            "cache, in 20 of memory; no split fits");
  EXPECT_EQ(
      SplitLayers(loads, 2, std::vector<uint64_t>{40, 20}).status().code(),
      StatusCode::kResourceExhausted);
}

// Every way to cut what is left, tried.
double Tried(const LayerLoads& loads, const std::vector<uint64_t>& memory,
             size_t stage, int32_t first) {
  const auto share = [&](int32_t last) {
    return static_cast<double>(loads.Of({first, last}).total()) /
           static_cast<double>(memory[stage]);
  };
  if (stage + 1 == memory.size()) return share(loads.num_layers());
  double least = std::numeric_limits<double>::infinity();
  const auto behind = static_cast<int32_t>(memory.size() - stage - 1);
  for (int32_t last = first + 1; last <= loads.num_layers() - behind; ++last) {
    least = std::min(
        least, std::max(share(last), Tried(loads, memory, stage + 1, last)));
  }
  return least;
}

TEST(SplitLayersTest, NoOtherSplitHasASmallerLargestShare) {
  std::mt19937 random(7);
  const auto draw = [&](uint64_t from, uint64_t to) {
    return from + random() % (to - from + 1);
  };
  for (int round = 0; round < 300; ++round) {
    LayerLoads loads = Layers(std::vector<uint64_t>(draw(1, 9)));
    for (uint64_t& layer : loads.layers) layer = draw(1, 1000);
    loads.embedding = draw(0, 2000);
    loads.head = draw(0, 2000);
    loads.kv.assign(loads.layers.size(), draw(0, 100));
    loads.tied = draw(0, 1) == 1;
    std::vector<uint64_t> memory(draw(1, loads.layers.size()));
    for (uint64_t& bytes : memory) bytes = draw(100'000, 400'000);
    const auto ranges =
        SplitLayers(loads, static_cast<int32_t>(memory.size()), memory);
    ASSERT_TRUE(ranges.ok()) << ranges.status();
    double largest = 0;
    for (size_t i = 0; i < memory.size(); ++i) {
      largest = std::max(largest,
                         static_cast<double>(loads.Of((*ranges)[i]).total()) /
                             static_cast<double>(memory[i]));
    }
    EXPECT_DOUBLE_EQ(largest, Tried(loads, memory, 0, 0)) << "round " << round;
  }
}

}  // namespace
}  // namespace sluice
