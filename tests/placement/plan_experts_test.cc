#include "common/placement/plan_experts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

// Layer 0 dense, the others with `experts` experts of 100 bytes.
struct Model {
  ModelConfig config;
  ModelBytes bytes;
};

Model WithExperts(int32_t experts) {
  Model model;
  model.config.model_type = "test";
  model.config.layers.resize(4);
  for (int i = 1; i < 4; ++i) model.config.layers[i].moe.num_experts = experts;
  const auto layer = static_cast<uint64_t>(experts) * 100;
  model.bytes.experts = {0, layer, layer, layer};
  return model;
}

ExpertPlanOptions Hosts(const std::vector<uint64_t>& bytes) {
  ExpertPlanOptions options;
  for (size_t i = 0; i < bytes.size(); ++i) {
    options.hosts.push_back(
        {{std::string(1, static_cast<char>('a' + i)), "h:1"}, bytes[i]});
  }
  return options;
}

using Runs = std::vector<PlacedExperts>;

Runs RunsOf(const Model& model, const ExpertPlanOptions& options) {
  const auto placement = PlanExperts(model.config, model.bytes, options);
  EXPECT_TRUE(placement.ok()) << placement.status();
  if (!placement.ok()) return {};
  EXPECT_TRUE(placement->layers[0].empty());
  EXPECT_EQ(placement->layers[1], placement->layers[3]);
  return placement->layers[1];
}

TEST(PlanExpertsTest, EqualHostsGetAlignedHalves) {
  EXPECT_EQ(RunsOf(WithExperts(64), Hosts({0, 0})),
            (Runs{{{0, 32}, {0}}, {{32, 64}, {1}}}));
  EXPECT_EQ(RunsOf(WithExperts(8), Hosts({0})), (Runs{{{0, 8}, {0}}}));
}

TEST(PlanExpertsTest, ThreeHostsAreCutAtLargePowersOfTwo) {
  const Runs runs = RunsOf(WithExperts(128), Hosts({0, 0, 0}));
  ASSERT_EQ(runs.size(), 3u);
  for (const PlacedExperts& run : runs) {
    EXPECT_EQ(run.experts.begin % 4, 0);
    EXPECT_NEAR(run.experts.size(), 128 / 3.0, 4.3);
  }
}

TEST(PlanExpertsTest, SharesFollowTheMemory) {
  // An id takes 300 bytes in all layers.
  EXPECT_EQ(RunsOf(WithExperts(64), Hosts({300 * 16, 300 * 48})),
            (Runs{{{0, 48}, {1}}, {{48, 64}, {0}}}));
}

TEST(PlanExpertsTest, ReplicasAreGroupsOfSimilarHosts) {
  ExpertPlanOptions options = Hosts({0, 300 * 8, 0, 300 * 8});
  options.replicas = 2;
  const Runs runs = RunsOf(WithExperts(16), options);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].hosts, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(runs[1].hosts, (std::vector<int32_t>{1, 3}));
  EXPECT_LE(runs[1].experts.size(), 8);
  options.replicas = 3;  // one is left over
  EXPECT_EQ(RunsOf(WithExperts(8), options), (Runs{{{0, 8}, {0, 1, 2, 3}}}));
}

TEST(PlanExpertsTest, WhatMayStayStays) {
  ExpertPlanOptions options = Hosts({0});
  options.local_bytes = 300 * 4 + 299;
  EXPECT_EQ(RunsOf(WithExperts(8), options),
            (Runs{{{0, 4}, {0}}, {{4, 8}, {}}}));
  options.local_bytes = 1 << 20;
  EXPECT_EQ(RunsOf(WithExperts(8), options), (Runs{{{0, 8}, {}}}));
}

TEST(PlanExpertsTest, FillsTheLastByteBeforeItRefuses) {
  EXPECT_EQ(RunsOf(WithExperts(8), Hosts({300 * 3, 300 * 3, 300 * 2})).size(),
            3u);
  const Model model = WithExperts(8);
  const auto refused =
      PlanExperts(model.config, model.bytes, Hosts({300 * 3, 300 * 4}));
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(refused.status()),
            "the experts take 2400 bytes, 8 ids of 300 in all layers; there "
            "is room for 7 of them on 2 groups of 1 replicas and on the "
            "stages");
  EXPECT_FALSE(PlanExperts(model.config, model.bytes, Hosts({1, 1})).ok());
}

TEST(PlanExpertsTest, RefusesWhatCannotBe) {
  const Model model = WithExperts(8);
  const auto refusal = [&](const ExpertPlanOptions& options) {
    return Message(PlanExperts(model.config, model.bytes, options).status());
  };
  EXPECT_EQ(refusal(Hosts({})),
            "number of hosts must be between 1 and 8, the experts of a "
            "layer; got 0");
  ExpertPlanOptions options = Hosts({0, 0});
  options.replicas = 3;
  EXPECT_EQ(refusal(options),
            "replicas must be between 1 and 2, the number of hosts; got 3");
  options = Hosts({0, 0});
  options.hosts[1].host.name = "a";
  EXPECT_EQ(refusal(options), "placement: hosts[1]: name 'a' stands twice");
  ModelConfig dense = model.config;
  dense.layers.assign(4, LayerConfig());
  EXPECT_EQ(Message(PlanExperts(dense, model.bytes, Hosts({0})).status()),
            "a model of type test has no experts to place");
}

}  // namespace
}  // namespace sluice
