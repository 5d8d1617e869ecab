#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "common/model_config/described_model.h"
#include "common/placement/cluster_plan.h"
#include "common/tools/plan/read_machines.h"

namespace sluice::plan {
namespace {

using placement::ClusterPlan;
using placement::PlanChoice;
using placement::PlanCluster;
using placement::PlanRequest;

// deploy/plans: a model's config.json and machines, and the type of
// weights that is told there.
struct Example {
  const char* folder;
  const char* weights;  // empty: as the config says
  int32_t streams;      // of --for
  size_t stages;
};

// Plans an example as its row of deploy/plans/README.md does.
StatusOr<ClusterPlan> PlanOf(const Example& example, PlanRequest& request) {
  const std::string folder =
      Cat(SLUICE_SOURCE_DIR, "/deploy/plans/", example.folder);
  std::optional<weights::DType> stored;
  if (*example.weights != '\0') stored = *ParseStoredType(example.weights);
  SLUICE_ASSIGN_OR_RETURN(const auto model, DescribeModel(folder, stored));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_ASSIGN_OR_RETURN(request.machines,
                          ReadMachines(folder + "/machines.toml"));
  request.loads.kv_type = kernels::WeightType::kBf16;
  request.context = 8192;
  request.aim.streams = example.streams;
  return PlanCluster(config, *model, request);
}

TEST(PlanExamplesTest, EveryExampleFits) {
  for (const Example& example : {Example{"glm-4.5-air", "q4_k", 1, 2},
                                 Example{"intellect-3", "q4_k", 1, 1},
                                 Example{"llama-3.3-70b", "", 64, 4}}) {
    PlanRequest request;
    const auto plan = PlanOf(example, request);
    ASSERT_TRUE(plan.ok()) << example.folder << ": " << plan.status();
    EXPECT_EQ(plan->stages.size(), example.stages);
    EXPECT_GE(plan->sequences, example.streams);
    EXPECT_GT(plan->speeds[0].tokens_per_second, 0);
  }
}

// A fast machine of little memory, a large one and an old one: by memory alone
// the old one has 5 layers, and takes most of a token's time.
TEST(PlanExamplesTest, ThreeUnequalMachinesAreSplitByTime) {
  PlanRequest request;
  request.wants_choices = true;
  const auto plan = PlanOf({"gpt-oss-120b", "", 1, 2}, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(1 / plan->seconds, 39);
  EXPECT_TRUE(plan->is_best);
  ASSERT_EQ(plan->stages.size(), 2u);
  EXPECT_EQ(plan->left_out, std::vector<int32_t>{2});
  double by_memory = 0;
  double without_mac = 0;
  double with_old = 0;
  for (const PlanChoice& choice : plan->choices) {
    if (choice.what == PlanChoice::What::kByMemory) by_memory = choice.seconds;
    if (choice.what == PlanChoice::What::kWith) with_old = choice.seconds;
    if (choice.what == PlanChoice::What::kWithout && choice.machine == 1) {
      without_mac = choice.seconds;
    }
  }
  EXPECT_GT(by_memory, 3 * plan->seconds);
  EXPECT_GT(with_old, 1.1 * plan->seconds);
  EXPECT_LT(with_old, by_memory);
  EXPECT_FALSE(std::isfinite(without_mac));
}

}  // namespace
}  // namespace sluice::plan
