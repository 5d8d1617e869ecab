#include "common/placement/cluster_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/placement/published_models.h"

namespace sluice::placement {
namespace {

using ::testing::HasSubstr;
using weights::DType;

TEST(PlanClusterTest, Llama70bIsOnFourMachinesOf80Gb) {
  const PaperModel model(kLlama70b);
  PlanRequest request = On("80G,2000,300000,150000", 4);
  request.context = 8192;
  request.stages = 4;
  const auto plan = PlanCluster(model.config, *model.file, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), 4u);
  uint64_t weights = 0;
  int32_t next = 0;
  for (const StagePlan& stage : plan->stages) {
    EXPECT_EQ(stage.range.first, next);
    next = stage.range.last;
    weights += stage.bytes.weights;
    EXPECT_LE(stage.total(), stage.memory);
  }
  EXPECT_EQ(next, 80);
  EXPECT_NEAR(double(weights), 2 * 70.55e9, 1e8);
  // 327,680 bytes a token; about 170 GB are left over.
  EXPECT_GT(plan->sequences, 50);
  EXPECT_LT(plan->sequences, 70);
  EXPECT_FALSE(plan->speeds.back().fits && plan->speeds.back().streams > 70);
  // Streams fill the pipeline.
  EXPECT_GT(plan->speeds[2].tokens_per_second,
            4 * plan->speeds[0].tokens_per_second);
}

TEST(PlanClusterTest, WhatDoesNotFitIsRefusedWithFigures) {
  const PaperModel model(kLlama70b);
  const auto plan = PlanCluster(model.config, *model.file, On("16G,100", 4));
  EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(plan.status()), HasSubstr("no split fits"));
  EXPECT_THAT(
      Message(
          PlanCluster(model.config, *model.file, On("100M,100", 2)).status()),
      HasSubstr("for activations alone"));
}

TEST(PlanClusterTest, GlmAirAndIntellectTakeFourBits) {
  // 48 GB each: BF16 and FP8 do not fit, Q4_K does.
  PlanRequest request = On("48G,90", 2);
  const PaperModel wide(kGlmAir, DType::kScaledE4M3);
  EXPECT_FALSE(PlanCluster(wide.config, *wide.file, request).ok());
  const PaperModel narrow(kGlmAir, DType::kQ4K);
  EXPECT_TRUE(PlanCluster(narrow.config, *narrow.file, request).ok());
  // INTELLECT-3 on one machine of less than 80 GB.
  const auto one = PlanCluster(narrow.config, *narrow.file, On("74G,90", 1));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_LT(one->stages[0].total(), 80e9);
}

TEST(PlanClusterTest, ExpertsGoToTheirHostsAndTripsCost) {
  const PaperModel model(kGlmAir, DType::kQ4K);
  PlanRequest request = On("80G,90", 3);
  const auto local = PlanCluster(model.config, *model.file, request);
  ASSERT_TRUE(local.ok());
  request.machines.machines[1].serves_experts = true;
  request.machines.machines[2].serves_experts = true;
  const auto plan = PlanCluster(model.config, *model.file, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), 1u);
  ASSERT_EQ(plan->hosts.size(), 2u);
  EXPECT_LT(plan->stages[0].bytes.weights, 8e9);
  EXPECT_NEAR(plan->hosts[0].share + plan->hosts[1].share, 1, 1e-9);
  EXPECT_NEAR(double(plan->hosts[0].experts), double(plan->hosts[1].experts),
              0.05 * double(plan->hosts[0].experts));
  // A slower link makes each layer wait longer.
  request.machines.link.latency_seconds = 5e-3;
  const auto far = PlanCluster(model.config, *model.file, request);
  EXPECT_LT(far->speeds[0].tokens_per_second,
            0.8 * plan->speeds[0].tokens_per_second);
  request.machines.machines[1].serves_experts = false;
  request.expert_replicas = 2;
  EXPECT_THAT(Message(PlanCluster(model.config, *model.file, request).status()),
              HasSubstr("replicas"));
}

TEST(PlanClusterTest, TwoStagesOnOneMachineTakeTurns) {
  const PaperModel model(kLlama70b, DType::kQ4K);
  PlanRequest request = On("80G,100,4000,2000", 1);
  request.context = 1024;
  const auto one = PlanCluster(model.config, *model.file, request);
  request.stages = 2;
  const auto two = PlanCluster(model.config, *model.file, request);
  ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
  EXPECT_EQ(two->stages[0].machine, two->stages[1].machine);
  for (size_t i = 0; i < one->speeds.size(); ++i) {
    EXPECT_LT(two->speeds[i].tokens_per_second,
              one->speeds[i].tokens_per_second);
    EXPECT_GT(two->speeds[i].tokens_per_second,
              0.98 * one->speeds[i].tokens_per_second);
  }
  request.stages = 81;
  EXPECT_FALSE(PlanCluster(model.config, *model.file, request).ok());
}

TEST(PlanClusterTest, OptionsBeyondTheModelAreRefused) {
  const PaperModel model(kLlama70b);
  const auto refused = [&](auto change, const std::string& words) {
    PlanRequest request = On("80G,2000", 4);
    change(request);
    EXPECT_THAT(
        Message(PlanCluster(model.config, *model.file, request).status()),
        HasSubstr(words));
  };
  refused([](auto& r) { r.loads.ranks = 17; }, "between 1 and 16, got 17");
  refused([](auto& r) { r.context = 200000; }, "between 1 and 131072");
  refused([](auto& r) { r.prompt_tokens = 0; }, "prompt must be");
  refused(
      [](auto& r) {
        for (auto& machine : r.machines.machines) machine.serves_experts = true;
      },
      "no machine is there for stages");
}

// GLM-4.5-Air in four bits where F32 leaves too little room.
TEST(PlanClusterTest, AutoKeysAndValuesArePlannedForAsBf16OfQuantisedWeights) {
  const PaperModel narrow(kGlmAir, DType::kQ4K);
  PlanRequest request = On("48G,90", 2);
  const auto bf16 = PlanCluster(narrow.config, *narrow.file, request);
  request.loads.kv_type = std::nullopt;
  const auto chosen = PlanCluster(narrow.config, *narrow.file, request);
  request.loads.kv_type = kernels::WeightType::kF32;
  const auto f32 = PlanCluster(narrow.config, *narrow.file, request);
  ASSERT_TRUE(bf16.ok() && chosen.ok() && f32.ok());
  EXPECT_EQ(chosen->kv_type, kernels::WeightType::kBf16);
  EXPECT_EQ(chosen->kv_tokens, bf16->kv_tokens);
  EXPECT_EQ(chosen->stages[0].bytes.kv, bf16->stages[0].bytes.kv);
  EXPECT_NEAR(double(chosen->kv_tokens), 2.0 * double(f32->kv_tokens), 64);
  // The same model in BF16 keeps F32.
  const PaperModel wide(kLlama70b);
  request = On("80G,2000", 4);
  request.loads.kv_type = std::nullopt;
  const auto kept = PlanCluster(wide.config, *wide.file, request);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->kv_type, kernels::WeightType::kF32);
}

TEST(PlanClusterTest, APlanThatBf16AloneMakesFitSaysSo) {
  const PaperModel model(kGlmAir, DType::kQ4K);
  PlanRequest request = On("48G,90", 2);
  request.context = 131072;
  request.loads.kv_type = kernels::WeightType::kF32;
  const Status status =
      PlanCluster(model.config, *model.file, request).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("with --kv-type bf16, keys and values "
                                         "of half the size, the plan fits"));
  request.loads.kv_type = std::nullopt;
  EXPECT_TRUE(PlanCluster(model.config, *model.file, request).ok());
}

TEST(PricePerMillionTest, AnHourAtARate) {
  EXPECT_DOUBLE_EQ(PricePerMillion(3.6, 100), 10);
  EXPECT_EQ(PricePerMillion(0, 100), 0);
}

}  // namespace
}  // namespace sluice::placement
