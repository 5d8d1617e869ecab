#include "common/tools/plan/plan_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "common/placement/layer_split.h"
#include "tests/placement/published_models.h"

namespace sluice::plan {
namespace {

using placement::ClusterPlan;
using placement::kGlmAir;
using placement::Machine;
using placement::PaperModel;
using placement::ParseMachine;
using placement::PlanCluster;
using placement::PlanRequest;
using placement::StageMemory;
using placement::StagePlan;
using ::testing::HasSubstr;
using ::testing::Not;

// A plan on `stages` machines for layers and `hosts` for experts.
struct Planned {
  Planned(int stages, int hosts) : model(kGlmAir, weights::DType::kQ4K) {
    for (int i = 0; i < stages + hosts; ++i) {
      Machine machine = *ParseMachine("96G,90");
      machine.name = Cat("m", i);
      machine.serves_experts = i >= stages;
      request.machines.machines.push_back(machine);
    }
    auto made = PlanCluster(model.config, *model.file, request);
    EXPECT_TRUE(made.ok()) << made.status();
    plan = *std::move(made);
  }
  std::string Write(Starter starter) const {
    FilesRequest files;
    files.model = "/models/air";
    files.weights = "q4_0";
    files.request = &request;
    files.plan = &plan;
    const auto text = PlanFile(starter, files);
    return text.ok() ? *text : Message(text.status());
  }

  PaperModel model;
  PlanRequest request;
  ClusterPlan plan;
};

TEST(PlanFileTest, StagesSplitByThemselvesAsThePlanDoes) {
  const Planned planned(3, 0);
  LayerLoadOptions loads;
  loads.kv_blocks = static_cast<int32_t>(planned.plan.kv_blocks);
  const auto ranges =
      SplitLayers(LoadsOf(planned.model.config, *planned.model.file, loads), 3,
                  StageMemory(planned.plan));
  ASSERT_TRUE(ranges.ok());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*ranges)[i], planned.plan.stages[i].range);
  }
}

TEST(PlanFileTest, UpStartsOneMachineWithOneCommand) {
  const Planned planned(1, 0);
  const std::string text = planned.Write(Starter::kUp);
  EXPECT_THAT(text, HasSubstr("deploy/local/up --model /models/air --stages 1 "
                              "--stage-memory "));
  EXPECT_THAT(text, HasSubstr(Cat("--kv-blocks ", planned.plan.kv_blocks,
                                  " --weights q4_0")));
}

// Every starter names the type that auto chose, for which room was reckoned.
TEST(PlanFileTest, AutoKeysAndValuesAreNamedAsTheyWerePlanned) {
  Planned planned(2, 0);
  planned.request.loads.kv_type = std::nullopt;
  auto made =
      PlanCluster(planned.model.config, *planned.model.file, planned.request);
  ASSERT_TRUE(made.ok()) << made.status();
  planned.plan = *std::move(made);
  EXPECT_THAT(planned.Write(Starter::kUp), HasSubstr(" --kv-type bf16"));
  EXPECT_THAT(planned.Write(Starter::kCompose), HasSubstr("--kv-type=bf16"));
  EXPECT_THAT(planned.Write(Starter::kKubernetes), HasSubstr("--kv-type=bf16"));
  EXPECT_THAT(planned.Write(Starter::kSlurm), HasSubstr("--kv-type bf16"));
  EXPECT_THAT(Planned(2, 0).Write(Starter::kUp), Not(HasSubstr("--kv-type")));
}

TEST(PlanFileTest, SeveralMachinesHaveACommandPerProcess) {
  const std::string text = Planned(2, 1).Write(Starter::kUp);
  EXPECT_THAT(text, HasSubstr("# on m1\nsluice-stage "));
  EXPECT_THAT(text, HasSubstr("--num-stages 2 --stage-index 1"));
  EXPECT_THAT(text, HasSubstr("# on m2\nsluice-expert "));
  EXPECT_THAT(text, HasSubstr("--host m2 "));
  EXPECT_THAT(text, HasSubstr("--stages m0:7001,m1:7001"));
  EXPECT_THAT(text, HasSubstr("\"address\": \"m2:7101\""));
}

TEST(PlanFileTest, SeveralMachinesWithoutHostsHaveAFileOfHosts) {
  const Planned planned(3, 0);
  const std::string text = planned.Write(Starter::kUp);
  EXPECT_THAT(text, HasSubstr(Cat("up --hosts hosts.toml --kv-blocks ",
                                  planned.plan.kv_blocks,
                                  " --weights q4_0\n"
                                  "model = \"/models/air\"\n")));
  for (const StagePlan& stage : planned.plan.stages) {
    EXPECT_THAT(text,
                HasSubstr(Cat("[hosts.\"m", stage.machine,
                              "\"]\nstages = 1\nlayers = \"", stage.range.first,
                              "-", stage.range.last - 1, "\"\n")));
  }
  EXPECT_THAT(text, Not(HasSubstr("sluice-stage")));
}

TEST(PlanFileTest, StagesOfOneMachineStandAtIt) {
  Planned planned(2, 0);
  planned.request.stages = 4;
  auto made =
      PlanCluster(planned.model.config, *planned.model.file, planned.request);
  ASSERT_TRUE(made.ok()) << made.status();
  planned.plan = *std::move(made);
  const auto& stages = planned.plan.stages;
  EXPECT_THAT(
      planned.Write(Starter::kUp),
      HasSubstr(Cat("[hosts.\"m1\"]\nstages = 2\nlayers = \"",
                    stages[2].range.first, "-", stages[2].range.last - 1, ",",
                    stages[3].range.first, "-", stages[3].range.last - 1)));
}

TEST(PlanFileTest, ComposeOverridesAndAddsServices) {
  const std::string text = Planned(3, 1).Write(Starter::kCompose);
  EXPECT_THAT(text,
              HasSubstr("--stages=stage-0:7001,stage-1:7001,stage-2:7001"));
  EXPECT_THAT(text, HasSubstr("  stage-2:\n    extends: "));
  EXPECT_THAT(text, HasSubstr("--host=planned-expert-0"));
  EXPECT_THAT(text, HasSubstr("\"address\": \"planned-expert-0:7101\""));
  const std::string one = Planned(1, 0).Write(Starter::kCompose);
  EXPECT_THAT(one, HasSubstr("  stage-1:\n    deploy: {replicas: 0}"));
  EXPECT_THAT(one, Not(HasSubstr("placement")));
}

TEST(PlanFileTest, KubernetesPatchesTheBase) {
  const std::string text = Planned(3, 2).Write(Starter::kKubernetes);
  EXPECT_THAT(text, HasSubstr("- SLUICE_NUM_STAGES=3\n"));
  EXPECT_THAT(text, HasSubstr("sluice-stage-2.sluice-stage.sluice.svc:7001"));
  EXPECT_THAT(text, HasSubstr("value: --weights=q4_0"));
  EXPECT_THAT(text, HasSubstr("sluice-expert-1.sluice-expert.sluice.svc:7101"));
}

TEST(PlanFileTest, SlurmHasANodePerStageAndNoExperts) {
  EXPECT_THAT(Planned(4, 0).Write(Starter::kSlurm),
              HasSubstr("sbatch -N 4 --exclusive --mem="));
  EXPECT_THAT(Planned(1, 1).Write(Starter::kSlurm),
              HasSubstr("has no hosts of experts"));
}

TEST(ParseStarterTest, NamesAreKnown) {
  EXPECT_EQ(*ParseStarter("kubernetes"), Starter::kKubernetes);
  EXPECT_THAT(Message(ParseStarter("helm").status()), HasSubstr("got 'helm'"));
}

}  // namespace
}  // namespace sluice::plan
