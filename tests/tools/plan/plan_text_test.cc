#include "common/tools/plan/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "common/base/json.h"
#include "common/placement/cluster_plan.h"
#include "tests/placement/published_models.h"

namespace sluice::plan {
namespace {

using placement::kGlmAir;
using placement::kLlama70b;
using placement::On;
using placement::PaperModel;
using placement::PlanCluster;
using placement::PlanRequest;
using ::testing::HasSubstr;
using weights::DType;

// Returns gigabytes with three digits.
std::string Thousandths(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", double(bytes) * 1e-9);
  return text;
}

TEST(PlanTextTest, ShortMemoryProposesKeysAndValuesInBf16) {
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

// A fast machine, a large one, and one that only costs time.
TEST(PlanTextTest, ChoicesAndGuessesAreTold) {
  const PaperModel model(kGlmAir, DType::kQ4K);
  PlanRequest request = On("40G,900", 3);
  auto& machines = request.machines.machines;
  machines[1] = *placement::ParseMachine("64G,200");
  machines[1].name = "mac";
  machines[1].is_measured = true;
  machines[2] = *placement::ParseMachine("16G,30");
  machines[2].name = "old";
  request.wants_choices = true;
  const auto plan = PlanCluster(model.config, *model.file, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const PlanView view = {"Air", 64'000'000'000, "Q4_K", &request, &*plan};
  const std::string text = PlanText(view);
  EXPECT_THAT(text, HasSubstr("left out old"));
  EXPECT_THAT(text, HasSubstr("made for 1 stream: "));
  EXPECT_THAT(text, HasSubstr("no other split, order or choice"));
  EXPECT_THAT(text, HasSubstr("with old "));
  EXPECT_THAT(text, HasSubstr("times as fast"));
  EXPECT_THAT(text, ::testing::ContainsRegex("without mac +does not fit"));
  EXPECT_THAT(text, HasSubstr("split by memory, all machines"));
  EXPECT_THAT(text, HasSubstr("guesses  rates of m-0: "));
  EXPECT_THAT(text, HasSubstr("links that are not named: 0.100 ms, 10.0 Gbit"));
  const auto json = ParseJson(PlanJson(view));
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["left_out"][0], "old");
  EXPECT_EQ((*json)["aim"]["choices"].size(), plan->choices.size());
  request.machines.is_link_named = true;
  EXPECT_THAT(PlanText(view), ::testing::Not(HasSubstr("not named")));
}

TEST(PlanTextTest, EqualMachinesHaveOneRow) {
  const PaperModel model(kLlama70b);
  PlanRequest request = On("80G,2000,300000", 3);
  request.wants_choices = true;
  const auto plan = PlanCluster(model.config, *model.file, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->stages.size(), 2u);
  const std::string text =
      PlanText({"Llama", 141'000'000'000, "bf16", &request, &*plan});
  EXPECT_THAT(text, HasSubstr("left out m-2"));
  EXPECT_THAT(text, HasSubstr("without m-0 (1 like it)"));
}

TEST(PlanTextTest, TablesPictureAndJsonSayTheSame) {
  const PaperModel model(kLlama70b);
  PlanRequest request = On("80G,2000,300000", 4);
  request.stages = 4;
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

}  // namespace
}  // namespace sluice::plan
