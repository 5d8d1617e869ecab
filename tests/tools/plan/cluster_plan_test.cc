#include "common/tools/plan/cluster_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>

#include "common/base/json.h"
#include "common/tools/plan/plan_text.h"
#include "tests/tools/plan/published_models.h"

namespace sluice::plan {
namespace {

using ::testing::HasSubstr;
using weights::DType;

PlanRequest On(const std::string& machine, int count) {
  PlanRequest request;
  for (int i = 0; i < count; ++i) {
    Machine one = *ParseMachine(machine);
    one.name = Cat("m-", i);
    request.machines.machines.push_back(one);
  }
  request.loads.kv_type = kernels::WeightType::kBf16;
  return request;
}

TEST(PlanClusterTest, Llama70bIsOnFourMachinesOf80Gb) {
  const PaperModel model(kLlama70b);
  PlanRequest request = On("80G,2000,300000,150000", 4);
  request.context = 8192;
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

// Returns gigabytes with three digits.
std::string Thousandths(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", double(bytes) * 1e-9);
  return text;
}

TEST(PlanClusterTest, ShortMemoryProposesKeysAndValuesInBf16) {
  const PaperModel model(kGlmAir, DType::kQ4K);
  PlanRequest request = On("48G,90", 2);
  request.loads.kv_type = kernels::WeightType::kF32;
  const auto text = [&] {
    const auto plan = PlanCluster(model.config, *model.file, request);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return PlanText({"Air", 64'000'000'000, "Q4_K", &request, &*plan});
  };
  const auto plan = PlanCluster(model.config, *model.file, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const uint64_t kv = plan->stages[0].bytes.kv + plan->stages[1].bytes.kv;
  EXPECT_FALSE(plan->speeds.back().fits);
  EXPECT_THAT(text(),
              HasSubstr(Cat("short    --kv-type bf16 takes ",
                            Thousandths(kv / 2), " GB less of the ",
                            Thousandths(kv), " GB of keys and values")));
  request.streams = {1};  // has room
  EXPECT_THAT(text(), ::testing::Not(HasSubstr("short ")));
  request.streams = {64};
  request.loads.kv_type = kernels::WeightType::kBf16;
  EXPECT_THAT(text(), ::testing::Not(HasSubstr("short ")));
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

TEST(PlanTextTest, TablesPictureAndJsonSayTheSame) {
  const PaperModel model(kLlama70b);
  PlanRequest request = On("80G,2000,300000", 4);
  request.machines.machines[0].price_per_hour = 2;
  request.machines.machines[0].name = "a<b";
  const auto plan = PlanCluster(model.config, *model.file, request);
  ASSERT_TRUE(plan.ok());
  const PlanView view = {"Llama", 141'000'000'000, "bf16", &request, &*plan};
  const std::string text = PlanText(view);
  EXPECT_THAT(text, HasSubstr("stage 3  m-3"));
  EXPECT_THAT(text, HasSubstr("price of 1 M"));
  const std::string picture = PlanPicture(view);
  EXPECT_THAT(picture, HasSubstr("| stage 0 on a<b "));
  EXPECT_THAT(picture, HasSubstr("[####"));
  const std::string svg = PlanSvg(view);
  EXPECT_THAT(svg, HasSubstr("stage 0 on a&lt;b"));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  const auto json = ParseJson(PlanJson(view));
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["stages"].size(), 4u);
  EXPECT_EQ((*json)["price_per_hour"], 2.0);
  EXPECT_EQ((*json)["speeds"][1]["streams"], 4);
}

TEST(PricePerMillionTest, AnHourAtARate) {
  EXPECT_DOUBLE_EQ(PricePerMillion(3.6, 100), 10);
  EXPECT_EQ(PricePerMillion(0, 100), 0);
}

}  // namespace
}  // namespace sluice::plan
