#include <gtest/gtest.h>

#include <string>

#include "common/model_config/described_model.h"
#include "common/placement/cluster_plan.h"
#include "common/tools/plan/read_machines.h"

namespace sluice::plan {
namespace {

using placement::PlanCluster;
using placement::PlanRequest;

// deploy/plans: a model's config.json and machines, and the type of
// weights that is told there.
struct Example {
  const char* folder;
  const char* weights;  // empty: as the config says
};

TEST(PlanExamplesTest, EveryExampleFits) {
  for (const auto& [name, weights] :
       {Example{"glm-4.5-air", "q4_k"}, Example{"intellect-3", "q4_k"},
        Example{"llama-3.3-70b", ""}}) {
    const std::string folder = Cat(SLUICE_SOURCE_DIR, "/deploy/plans/", name);
    std::optional<weights::DType> stored;
    if (*weights != '\0') stored = *ParseStoredType(weights);
    const auto model = DescribeModel(folder, stored);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    ASSERT_TRUE(config.ok()) << config.status();
    PlanRequest request;
    const auto machines = ReadMachines(folder + "/machines.toml");
    ASSERT_TRUE(machines.ok()) << machines.status();
    request.machines = *machines;
    const auto plan = PlanCluster(*config, **model, request);
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status();
    EXPECT_EQ(plan->stages.size(), machines->machines.size());
    EXPECT_GT(plan->sequences, 0);
    EXPECT_GT(plan->speeds[0].tokens_per_second, 0);
  }
}

}  // namespace
}  // namespace sluice::plan
