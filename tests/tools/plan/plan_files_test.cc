#include "common/tools/plan/plan_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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
using placement::StagePlan;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A plan on `stages` machines for layers and `hosts` for experts.
struct Planned {
  Planned(int stages, int hosts, const std::string& figures = "96G,90")
      : model(kGlmAir, weights::DType::kQ4K) {
    for (int i = 0; i < stages + hosts; ++i) {
      Machine machine = *ParseMachine(figures);
      machine.name = Cat("m", i);
      machine.serves_experts = i >= stages;
      request.machines.machines.push_back(machine);
    }
    request.stages = stages;
    Plan();
  }
  void Plan() {
    auto made = PlanCluster(model.config, *model.file, request);
    EXPECT_TRUE(made.ok()) << made.status();
    plan = *std::move(made);
  }
  Machine& machine(size_t i) { return request.machines.machines[i]; }
  // Puts all machines into one box.
  Planned& At(const std::string& address) {
    for (Machine& one : request.machines.machines) one.address = address;
    return *this;
  }
  std::string Write(Starter starter,
                    const std::string& source = "/models/air") const {
    FilesRequest files;
    files.model = source;
    files.of_hub = !source.starts_with("/");
    files.weights = "q4_0";
    files.request = &request;
    files.plan = &plan;
    const auto text = PlanFile(starter, files);
    return text.ok() ? *text : Message(text.status());
  }
  std::string Layers(size_t i) const {
    const LayerRange& range = plan.stages[i].range;
    return Cat(range.first, "-", range.last - 1);
  }
  std::string AllLayers() const {
    std::string all;
    for (size_t i = 0; i < plan.stages.size(); ++i) {
      all += Cat(i == 0 ? "" : ",", Layers(i));
    }
    return all;
  }

  PaperModel model;
  PlanRequest request;
  ClusterPlan plan;
};

constexpr Starter kAll[] = {Starter::kUp, Starter::kCompose,
                            Starter::kKubernetes, Starter::kSlurm,
                            Starter::kSystemd};
constexpr char kHub[] = "org/Air-1.5@0123456789abcdef0123456789abcdef01234567";

TEST(PlanFileTest, EveryStarterIsToldAllOfAStage) {
  Planned planned(2, 0);
  planned.At("localhost");
  planned.request.loads.kv_type = std::nullopt;  // bf16 beside such weights
  planned.request.context = 2048;
  planned.Plan();
  for (const Starter starter : kAll) {
    const std::string text = planned.Write(starter);
    SCOPED_TRACE(text);
    for (const std::string& word :
         {Cat("kv-blocks", "@", planned.plan.kv_blocks),
          Cat("max-context@2048"), Cat("weights@q4_0"), Cat("kv-type@bf16")}) {
      const std::string name = word.substr(0, word.find('@'));
      const std::string value = word.substr(word.find('@') + 1);
      EXPECT_THAT(text, ::testing::AnyOf(HasSubstr(Cat(name, " ", value)),
                                         HasSubstr(Cat(name, "=", value)),
                                         HasSubstr(Cat(name, " = ", value)),
                                         HasSubstr(Cat(name, " = \"", value))));
    }
    EXPECT_THAT(text, HasSubstr(planned.Layers(0)));
    EXPECT_THAT(text, HasSubstr(planned.Layers(1)));
    EXPECT_THAT(text, Not(HasSubstr("stage-memory")));
    EXPECT_THAT(text, Not(HasSubstr("cuda")));
  }
}

TEST(PlanFileTest, UpStartsThisMachineWithOneCommand) {
  Planned planned(1, 0);
  EXPECT_THAT(planned.Write(Starter::kUp),
              HasSubstr("deploy/local/up --model /models/air --stages 1 "
                        "--layers 0-45 --kv-blocks "));
  // GPUs of one box are devices of its stages.
  Planned two(2, 1);
  two.At("localhost");
  two.machine(0).device = "cuda:0";
  two.machine(1).device = "cuda:1";
  const std::string text = two.Write(Starter::kUp, "org/air");
  EXPECT_THAT(text, AllOf(HasSubstr("--model org/air --stages 2"),
                          HasSubstr("--device cuda:0,cuda:1"),
                          HasSubstr("--placement placement.json"),
                          HasSubstr("--expert-device cpu"),
                          HasSubstr("--numerics canonical"),
                          HasSubstr("\"name\": \"expert-0\"")));
}

TEST(PlanFileTest, SeveralMachinesHaveAFileOfHosts) {
  Planned planned(3, 0);
  planned.machine(1).address = "10.0.0.5";
  planned.machine(2).device = "cuda:3";
  const std::string text = planned.Write(Starter::kUp);
  EXPECT_THAT(text, HasSubstr(Cat("up --hosts hosts.toml --kv-blocks ",
                                  planned.plan.kv_blocks,
                                  " --max-context 4096 --weights q4_0 "
                                  "--numerics canonical\n"
                                  "model = \"/models/air\"\n")));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(text,
                HasSubstr(Cat("[hosts.\"m", i, "\"]\nstages = 1\nlayers = \"",
                              planned.Layers(i), "\"\ndevice = \"",
                              i == 2 ? "cuda:3" : "cpu", "\"\n",
                              i == 1 ? "address = \"10.0.0.5\"" : "")));
  }
  EXPECT_THAT(planned.Write(Starter::kUp, kHub),
              AllOf(HasSubstr(Cat("m1: mkdir -p models && sluice pull ", kHub,
                                  " --layers ", planned.Layers(1), " --link ")),
                    HasSubstr("model = \"models/Air-1.5-0123456789abcdef")));
}

TEST(PlanFileTest, StagesOfOneMachineStandAtIt) {
  Planned planned(2, 0);
  planned.request.stages = 4;
  planned.Plan();
  EXPECT_THAT(planned.Write(Starter::kUp),
              HasSubstr(Cat("[hosts.\"m1\"]\nstages = 2\nlayers = \"",
                            planned.Layers(2), ",", planned.Layers(3))));
}

TEST(PlanFileTest, AMachineWithoutAStageIsNotStarted) {
  Planned planned(2, 0);
  Machine left_out = planned.machine(0);
  left_out.name = "left-out";
  planned.request.machines.machines.insert(
      planned.request.machines.machines.begin(), left_out);
  // In the pipeline's order, which is not the file's.
  planned.plan.stages[0].machine = 2;
  planned.plan.stages[1].machine = 1;
  for (const Starter starter : {Starter::kUp, Starter::kSlurm,
                                Starter::kKubernetes, Starter::kSystemd}) {
    const std::string text = planned.Write(starter);
    EXPECT_THAT(text, Not(HasSubstr("left-out")));
  }
  const std::string text = planned.Write(Starter::kUp);
  EXPECT_LT(text.find("[hosts.\"m1\"]"), text.find("[hosts.\"m0\"]"));
  EXPECT_THAT(planned.Write(Starter::kSlurm), HasSubstr("sbatch -N 2 "));
}

TEST(PlanFileTest, UpNamesWhatItStartsNot) {
  EXPECT_EQ(Planned(2, 1).Write(Starter::kUp),
            "up: up --hosts starts no hosts of experts, the plan has 1 (m2): "
            "systemd, kubernetes and slurm do");
  Planned there(3, 0);
  there.plan.stages[2].machine = 0;
  EXPECT_EQ(there.Write(Starter::kUp),
            "up: stages 0 and 2 are on m0, those between are not: the stages "
            "of a host follow each other");
}

TEST(PlanFileTest, DevicesThatNoStageTakesAreRefused) {
  Planned planned(1, 0);
  planned.request.stages = 2;
  planned.Plan();
  for (const auto& [device, said] :
       {std::pair{"tpu",
                  "machine m0: device must be cpu or cuda:G[,G...], got "
                  "'tpu'"},
        {"cuda:", "got 'cuda:'"},
        {"cuda:0;x", "got 'cuda:0;x'"},
        {"cuda:0", "machine m0 has 1 GPUs (cuda:0) and 2 stages"},
        {"cuda:0,1,2,3",
         "machine m0 gives each stage 2 GPUs, a rank on each: "
         "plan with --ranks 2, got 1"}}) {
    planned.machine(0).device = device;
    for (const Starter starter : kAll) {
      EXPECT_THAT(planned.Write(starter), HasSubstr(said)) << device;
    }
  }
  planned.request.loads.ranks = 2;
  EXPECT_THAT(
      planned.Write(Starter::kUp),
      AllOf(HasSubstr("--device cuda:0,1,cuda:2,3"), HasSubstr("--ranks 2")));
}

TEST(PlanFileTest, ComposeOverridesAndAddsServicesOfOneMachine) {
  Planned planned(3, 1);
  EXPECT_EQ(planned.Write(Starter::kCompose),
            "compose: one engine starts the containers of one machine, the "
            "plan has 4 (m0, m1, m2, m3); machines of one address are one");
  const std::string text = planned.At("box").Write(Starter::kCompose);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("--stages=stage-0:7001,stage-1:7001,stage-2"),
            HasSubstr("  stage-2:\n    extends: "),
            HasSubstr("--host=planned-expert-0"),
            HasSubstr("\"address\": \"planned-expert-0:7101\""),
            HasSubstr("source: /models/air\n        target: /srv/model\n"),
            HasSubstr("- --model=/srv/model\n"),
            HasSubstr("--max-plans-in-flight=1\n")));
  const std::string one = Planned(1, 0).Write(Starter::kCompose);
  EXPECT_THAT(one, HasSubstr("  stage-1:\n    deploy: {replicas: 0}"));
  EXPECT_THAT(one, Not(HasSubstr("placement")));
}

TEST(PlanFileTest, ComposeFetchesOrMountsTheModel) {
  const Planned planned(1, 0);
  EXPECT_THAT(planned.Write(Starter::kCompose, "/m/a/x-00001-of-00002.gguf"),
              AllOf(HasSubstr("source: /m/a\n        target: /srv/model\n"),
                    HasSubstr("--model=/srv/model/x-00001-of-00002.gguf\n")));
  EXPECT_THAT(
      planned.Write(Starter::kCompose, "/hf/models--o--n/snapshots/c"),
      AllOf(HasSubstr("source: /hf/models--o--n\n        target: /srv/model\n"),
            HasSubstr("--model=/srv/model/snapshots/c\n")));
  EXPECT_THAT(
      planned.Write(Starter::kCompose, "org/name@v1:Q4_K_M"),
      AllOf(HasSubstr("pull:\n    profiles: [cpu]\n    command: "
                      "[\"org/name@v1:Q4_K_M\", --link, "
                      "\"/models/name-v1-Q4_K_M\"]"),
            HasSubstr("pull: {condition: service_completed_successfully}"),
            HasSubstr("--model=/models/name-v1-Q4_K_M\n")));
  EXPECT_THAT(planned.Write(Starter::kCompose, "/a $b"),
              HasSubstr("source: \"/a $$b\"\n        target: /srv/model\n"));
}

TEST(PlanFileTest, ComposeReservesTheGpus) {
  Planned planned(2, 0);
  planned.At("box").request.loads.ranks = 2;
  planned.machine(0).device = "cuda:0,1";
  planned.machine(1).device = "cuda:2,3";
  const std::string text = planned.Write(Starter::kCompose);
  EXPECT_THAT(text, AllOf(HasSubstr("device_ids: [\"0\", \"1\"]"),
                          HasSubstr("device_ids: [\"2\", \"3\"]"),
                          HasSubstr("- --device=cuda:0,1\n"),
                          HasSubstr("-cuda\n    build: {target: cuda}\n")));
  // A container counts its GPUs from 0, and its memory is not the GPUs'.
  EXPECT_THAT(text, Not(HasSubstr("--device=cuda:2")));
  EXPECT_THAT(text, Not(HasSubstr("mem_limit")));
}

TEST(PlanFileTest, KubernetesPatchesTheBase) {
  const Planned planned(3, 2);
  const std::string text = planned.Write(Starter::kKubernetes);
  EXPECT_THAT(text, HasSubstr("- SLUICE_NUM_STAGES=3\n"));
  EXPECT_THAT(text, HasSubstr("sluice-stage-2.sluice-stage.sluice.svc:7001"));
  EXPECT_THAT(text, HasSubstr("\"--weights=q4_0\""));
  EXPECT_THAT(text, HasSubstr("sluice-expert-1.sluice-expert.sluice.svc:7101"));
  EXPECT_THAT(text, HasSubstr(Cat("\"--layers=", planned.AllLayers(), "\"")));
  EXPECT_THAT(text, Not(HasSubstr("download")));
  EXPECT_THAT(planned.Write(Starter::kKubernetes, "/srv/air"),
              HasSubstr("kubernetes: pods cannot read /srv/air"));
  // All pods of a mixture read a claim; otherwise each pulls its layers.
  EXPECT_THAT(planned.Write(Starter::kKubernetes, kHub),
              AllOf(HasSubstr("components/download"),
                    HasSubstr(Cat("value: [pull, \"", kHub, "\", --link="))));
  EXPECT_THAT(Planned(3, 0).Write(Starter::kKubernetes, kHub),
              AllOf(HasSubstr("components/pull"), Not(HasSubstr("download")),
                    HasSubstr(Cat("/data/HUB_MODEL, value: \"", kHub, "\"}"))));
}

TEST(PlanFileTest, KubernetesPodsAreAlike) {
  Planned planned(2, 0);
  planned.machine(1).memory = uint64_t{20} << 30;
  EXPECT_THAT(planned.Write(Starter::kKubernetes),
              HasSubstr("machine m1 gives 20480Mi"));
  planned.machine(1).device = "cuda:0";
  EXPECT_THAT(planned.Write(Starter::kKubernetes),
              HasSubstr("a stage of m0 has 0, of m1 1"));
  planned.machine(0).device = "cuda:0,1";
  planned.machine(1).device = "cuda:0,1";
  planned.request.loads.ranks = 2;
  const std::string text = planned.Write(Starter::kKubernetes);
  EXPECT_THAT(text, AllOf(HasSubstr("components/gpu"),
                          HasSubstr("nvidia.com~1gpu, value: \"2\""),
                          HasSubstr("value: \"--device=cuda:0,1\""),
                          HasSubstr("name: sluice-cuda")));
  // components/gpu says what memory of the node a pod has.
  EXPECT_THAT(text, Not(HasSubstr("/memory")));
}

TEST(PlanFileTest, NodesGiveLessThanTheirMemory) {
  const uint64_t memory = uint64_t{48} << 30;
  EXPECT_EQ(GivenMemory(Starter::kUp, memory), memory);
  EXPECT_LE(GivenMemory(Starter::kKubernetes, memory), memory - memory / 10);
  EXPECT_LE(GivenMemory(Starter::kSlurm, memory), memory - memory / 32);
  EXPECT_EQ(GivenMemory(Starter::kKubernetes, uint64_t{1} << 29), 0u);
}

TEST(PlanFileTest, SlurmHasANodePerMachine) {
  const Planned four(4, 0);
  EXPECT_THAT(four.Write(Starter::kSlurm),
              AllOf(HasSubstr("\nsbatch -N 4 --exclusive --mem="),
                    HasSubstr(Cat("--layers ", four.AllLayers(),
                                  " --stages-per-node 1 --stage-options "))));
  Planned two(2, 0);
  two.request.stages = 4;
  two.Plan();
  const std::string text = two.Write(Starter::kSlurm);
  const uint64_t bytes =
      two.plan.stages[0].total() + two.plan.stages[1].total();
  const size_t at = text.find("--mem=") + 6;
  EXPECT_GE(std::stoull(text.substr(at)), bytes >> 20);
  EXPECT_THAT(
      text, AllOf(HasSubstr("sbatch -N 2 "), HasSubstr("--stages-per-node 2 "),
                  Not(HasSubstr("--nodelist"))));
  EXPECT_THAT(two.Write(Starter::kSlurm, kHub),
              AllOf(HasSubstr(Cat("pull ", kHub)), HasSubstr("\"$model\"")));
}

TEST(PlanFileTest, SlurmNamesNodesThatAreNotAlike) {
  Planned planned(2, 0);
  planned.machine(1).memory = uint64_t{64} << 30;
  EXPECT_THAT(planned.Write(Starter::kSlurm),
              AllOf(HasSubstr("--mem=0 --nodelist=m0,m1 "),
                    HasSubstr("--stages-per-node 1,1 --node-order m0,m1 ")));
  for (const size_t i : {size_t{0}, size_t{1}})
    planned.machine(i).device = "cuda:0";
  EXPECT_THAT(
      planned.Write(Starter::kSlurm),
      AllOf(HasSubstr("--gres=gpu:1"), HasSubstr("--gpus-per-stage 1")));
  planned.machine(0).device = "";
  EXPECT_THAT(planned.Write(Starter::kSlurm),
              HasSubstr("slurm: the nodes of a job have one --gres: m0 uses 0 "
                        "GPUs, m1 1"));
}

TEST(PlanFileTest, SlurmPutsExpertsOnTheLastNodes) {
  const std::string text = Planned(2, 2).Write(Starter::kSlurm);
  EXPECT_THAT(text, AllOf(HasSubstr("sbatch -N 4 "),
                          HasSubstr("\"address\": \"expert-1:7101\""),
                          HasSubstr("--placement placement.json"),
                          HasSubstr("--expert-options '--weights q4_0'")));
  Planned shared(1, 1);
  EXPECT_THAT(shared.At("a").Write(Starter::kSlurm),
              HasSubstr("a node of a job has stages or one host"));
  Planned on_gpus(1, 1);
  on_gpus.machine(0).device = on_gpus.machine(1).device = "cuda:0";
  EXPECT_THAT(on_gpus.Write(Starter::kSlurm),
              HasSubstr("hosts of experts of a job compute on CPUs, m1 has"));
}

TEST(PlanFileTest, SystemdWritesTheUnitsOfEachMachine) {
  Planned planned(2, 1);
  planned.machine(1).address = "10.0.0.5";
  const std::string text = planned.Write(Starter::kSystemd);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("\nm0)\n"), HasSubstr("\nm1)\n"), HasSubstr("\nm2)\n"),
            HasSubstr("stages = [\"m0:7001\", \"10.0.0.5:7001\"]"),
            HasSubstr("units='sluice-stage@0 sluice-gateway'"),
            HasSubstr("units='sluice-expert@0'"),
            HasSubstr("certificates tls --host m0=m0 --host m1=10.0.0.5"),
            HasSubstr("LoadCredential=key:/etc/sluice/tls/m1-stage.key"),
            HasSubstr("MemoryMax=")));
  EXPECT_THAT(planned.Write(Starter::kSystemd, "/tmp/air"),
              HasSubstr("systemd: the units' sandbox hides /tmp/"));
  EXPECT_THAT(planned.Write(Starter::kSystemd, kHub),
              HasSubstr(Cat("  pull ", kHub, " --layers ", planned.Layers(1),
                            " --link /srv/sluice/Air-1.5-")));
}

TEST(ParseStarterTest, NamesAreKnown) {
  EXPECT_EQ(*ParseStarter("kubernetes"), Starter::kKubernetes);
  EXPECT_EQ(*ParseStarter("systemd"), Starter::kSystemd);
  EXPECT_THAT(Message(ParseStarter("helm").status()), HasSubstr("got 'helm'"));
}

}  // namespace
}  // namespace sluice::plan
