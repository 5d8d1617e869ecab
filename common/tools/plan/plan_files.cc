#include "common/tools/plan/plan_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"

namespace sluice::plan {
namespace {

using placement::ClusterPlan;
using placement::HostPlan;
using placement::Machine;
using placement::StageMemory;
using placement::StagePlan;

constexpr std::pair<Starter, const char*> kStarters[] = {
    {Starter::kUp, "up"},
    {Starter::kCompose, "compose"},
    {Starter::kKubernetes, "kubernetes"},
    {Starter::kSlurm, "slurm"}};
// What a container may take beyond the plan, as a divisor: page tables, the
// heap's holes.
constexpr uint64_t kSlackPart = 10;

const Machine& MachineOf(const FilesRequest& files, int32_t index) {
  return files.request->machines.machines[static_cast<size_t>(index)];
}

std::string AddressOf(const Machine& machine) {
  return machine.address.empty() ? machine.name : machine.address;
}

// Returns what a container may take: `bytes` and slack, at most all `memory`.
uint64_t Mebibytes(uint64_t bytes, uint64_t memory) {
  return std::min(bytes + bytes / kSlackPart, memory) >> 20;
}

uint64_t HostMebibytes(const FilesRequest& files, const HostPlan& host) {
  return Mebibytes(host.experts, MachineOf(files, host.machine).memory);
}

uint64_t MostStageMebibytes(const FilesRequest& files) {
  uint64_t most = 0;
  for (const StagePlan& stage : files.plan->stages) {
    most = std::max(
        most, Mebibytes(stage.total(), MachineOf(files, stage.machine).memory));
  }
  return most;
}

using Options = std::vector<std::pair<std::string, std::string>>;

std::string MemoryList(const ClusterPlan& plan) {
  std::string list;
  for (const uint64_t bytes : StageMemory(plan)) {
    list += Cat(list.empty() ? "" : ",", bytes);
  }
  return list;
}

// What every stage is told beside its place.
Options StageOptions(const FilesRequest& files) {
  const LayerLoadOptions& loads = files.request->loads;
  Options options = {{"stage-memory", MemoryList(*files.plan)},
                     {"kv-blocks", Cat(files.plan->kv_blocks)}};
  if (!files.weights.empty() && files.weights != "auto") {
    options.emplace_back("weights", files.weights);
  }
  if (files.plan->kv_type != kernels::WeightType::kF32) {
    options.emplace_back("kv-type", ToString(files.plan->kv_type));
  }
  if (loads.ranks > 1) options.emplace_back("ranks", Cat(loads.ranks));
  if (loads.max_step_tokens != LayerLoadOptions().max_step_tokens) {
    options.emplace_back("max-step-tokens", Cat(loads.max_step_tokens));
  }
  return options;
}

std::string Words(const Options& options) {
  std::string words;
  for (const auto& [name, value] : options) {
    words += Cat(" --", name, " ", value);
  }
  return words;
}

// Returns the placement with hosts named `prefix`0, `prefix`1, ...
std::string PlacementText(const ClusterPlan& plan, const std::string& prefix,
                          const std::string& behind) {
  ExpertPlacement named = plan.placement;
  for (size_t i = 0; i < named.hosts.size(); ++i) {
    named.hosts[i].name = Cat(prefix, i);
    named.hosts[i].address = Cat(prefix, i, behind, ":7101");
  }
  return ToText(named);
}

std::string Indented(const std::string& text, int columns) {
  std::string out;
  const std::string indent(static_cast<size_t>(columns), ' ');
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += Cat(indent, text.substr(begin, end - begin), "\n");
    begin = end + 1;
  }
  return out;
}

bool OnOneMachine(const FilesRequest& files) {
  return files.request->machines.machines.size() == 1;
}

std::string UpCommand(const FilesRequest& files) {
  return Cat("# Starts the planned cluster on this machine.\n",
             "deploy/local/up --model ", files.model, " --stages ",
             files.plan->stages.size(), Words(StageOptions(files)), "\n");
}

// TOML's basic strings are JSON's.
std::string Quoted(const std::string& text) { return DumpJson(Json(text)); }

// The file of `up --hosts`. The stages of a machine follow each other.
std::string HostsFile(const FilesRequest& files) {
  Options options = StageOptions(files);
  options.erase(options.begin());  // --stage-memory: the file has the layers
  const ClusterPlan& plan = *files.plan;
  std::string text =
      Cat("# hosts.toml: deploy/local/up --hosts hosts.toml", Words(options),
          "\nmodel = ", Quoted(files.model), "\n");
  for (size_t i = 0; i < plan.stages.size();) {
    const int32_t at = plan.stages[i].machine;
    const Machine& machine = MachineOf(files, at);
    std::string layers;
    int count = 0;
    for (; i < plan.stages.size() && plan.stages[i].machine == at; ++i) {
      const LayerRange& range = plan.stages[i].range;
      layers += Cat(count++ == 0 ? "" : ",", range.first, "-", range.last - 1);
    }
    text += Cat("\n[hosts.", Quoted(machine.name), "]\nstages = ", count,
                "\nlayers = \"", layers, "\"\n");
    if (!machine.address.empty()) {
      text += Cat("address = ", Quoted(machine.address), "\n");
    }
  }
  return text;
}

// The commands of processes on several machines.
std::string UpCommands(const FilesRequest& files) {
  const ClusterPlan& plan = *files.plan;
  const bool hosts = !plan.hosts.empty();
  const std::string tls =
      " --tls-cert tls.pem --tls-key tls.key --tls-ca ca.pem";
  std::string text =
      "# Each machine runs its command; certificates: services/README.md.\n";
  std::string stages;
  std::vector<int> on(files.request->machines.machines.size());
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const int32_t at = plan.stages[i].machine;
    const Machine& machine = MachineOf(files, at);
    const int port = 7001 + on[static_cast<size_t>(at)]++;
    stages += Cat(i == 0 ? "" : ",", AddressOf(machine), ":", port);
    text += Cat("# on ", machine.name, "\nsluice-stage --listen 0.0.0.0:", port,
                " --model ", files.model, " --layers auto --num-stages ",
                plan.stages.size(), " --stage-index ", i,
                Words(StageOptions(files)),
                hosts ? " --placement placement.json" : "", tls, "\n");
  }
  for (size_t i = 0; i < plan.hosts.size(); ++i) {
    const Machine& machine = MachineOf(files, plan.hosts[i].machine);
    text += Cat("# on ", machine.name, "\nsluice-expert --listen 0.0.0.0:7101 ",
                "--model ", files.model, " --placement placement.json --host ",
                plan.placement.hosts[i].name, tls, "\n");
  }
  const Machine& first = MachineOf(files, plan.stages[0].machine);
  text += Cat("# on ", first.name, "\nsluice-gateway --listen 127.0.0.1:8080 ",
              "--model ", files.model, " --stages ", stages, tls, "\n");
  if (!hosts) return text;
  return Cat(text, "# placement.json, on every machine\ncat > placement.json ",
             "<<'END'\n", ToText(plan.placement), "END\n");
}

std::string ComposeCommand(const std::string& program,
                           const FilesRequest& files, const Options& options) {
  std::string text =
      Cat("    command:\n      - ", program,
          "\n      - --metrics-listen=0.0.0.0:9100\n",
          "      - --model=", files.model, "\n      - --insecure\n");
  for (const auto& [name, value] : options) {
    text += Cat("      - --", name, "=", value, "\n");
  }
  return text;
}

std::string ComposeGateway(const FilesRequest& files) {
  std::string stages;
  for (size_t i = 0; i < files.plan->stages.size(); ++i) {
    stages += Cat(i == 0 ? "" : ",", "stage-", i, ":7001");
  }
  return Cat("  gateway:\n",
             ComposeCommand("sluice-gateway", files,
                            {{"listen", "0.0.0.0:8000"},
                             {"stages", stages},
                             {"allowed-hosts", "gateway"},
                             {"drain-timeout", "120"}}),
             "      - --open\n      - --access-log\n");
}

std::string ComposeStage(const FilesRequest& files, size_t index) {
  const StagePlan& stage = files.plan->stages[index];
  const bool hosts = !files.plan->hosts.empty();
  Options options = {{"listen", "0.0.0.0:7001"},
                     {"layers", "auto"},
                     {"num-stages", Cat(files.plan->stages.size())},
                     {"stage-index", Cat(index)},
                     {"packed", "/packed"},
                     {"drain-timeout", "60"}};
  if (hosts) options.emplace_back("placement", "/etc/sluice/plan.json");
  for (auto& option : StageOptions(files)) options.push_back(std::move(option));
  std::string text = Cat("  stage-", index, ":\n");
  if (index > 1) {
    text += "    extends: {file: compose.yaml, service: stage-0}\n";
  }
  text += Cat("    mem_limit: ",
              Mebibytes(stage.total(), MachineOf(files, stage.machine).memory),
              "m\n");
  if (hosts) {
    text += "    configs: [{source: plan, target: /etc/sluice/plan.json}]\n";
  }
  return text + ComposeCommand("sluice-stage", files, options);
}

std::string ComposeFile(const FilesRequest& files) {
  const ClusterPlan& plan = *files.plan;
  std::string text =
      "# Beside docker/compose.yaml, as docker/plan.yaml:\n"
      "#   docker compose -f docker/compose.yaml -f docker/plan.yaml --profile "
      "cpu up\nservices:\n";
  text += ComposeGateway(files);
  for (size_t i = 0; i < plan.stages.size(); ++i)
    text += ComposeStage(files, i);
  if (plan.stages.size() == 1) {
    text += "  stage-1:\n    deploy: {replicas: 0}\n";
  }
  for (size_t i = 0; i < plan.hosts.size(); ++i) {
    text +=
        Cat("  planned-expert-", i,
            ":\n    extends: {file: compose.yaml, service: stage-0}\n",
            "    mem_limit: ", HostMebibytes(files, plan.hosts[i]), "m\n",
            "    configs: [{source: plan, target: /etc/sluice/plan.json}]\n",
            ComposeCommand("sluice-expert", files,
                           {{"listen", "0.0.0.0:7101"},
                            {"placement", "/etc/sluice/plan.json"},
                            {"host", Cat("planned-expert-", i)},
                            {"packed", "/packed"}}));
  }
  if (plan.hosts.empty()) return text;
  return Cat(text, "configs:\n  plan:\n    content: |\n",
             Indented(PlacementText(plan, "planned-expert-", ""), 6));
}

std::string Resources(uint64_t mebibytes, int indent) {
  return Indented(
      Cat("- op: replace\n",
          "  path: "
          "/spec/template/spec/containers/0/resources/requests/memory\n",
          "  value: ", mebibytes, "Mi\n", "- op: replace\n",
          "  path: /spec/template/spec/containers/0/resources/limits/memory\n",
          "  value: ", mebibytes, "Mi\n"),
      indent);
}

std::string KubernetesStages(const FilesRequest& files) {
  std::string text =
      Cat("  - target: {kind: StatefulSet, labelSelector: ",
          "app.kubernetes.io/component=stage}\n    patch: |\n",
          "      - op: replace\n        path: /spec/replicas\n        value: ",
          files.plan->stages.size(), "\n");
  for (const auto& [name, value] : StageOptions(files)) {
    text += Cat("      - op: add\n",
                "        path: /spec/template/spec/containers/0/args/-\n",
                "        value: --", name, "=", value, "\n");
  }
  return text + Resources(MostStageMebibytes(files), 6);
}

std::string KubernetesHosts(const FilesRequest& files) {
  uint64_t most = 0;
  for (const HostPlan& host : files.plan->hosts) {
    most = std::max(most, HostMebibytes(files, host));
  }
  return Cat("  - target: {kind: ConfigMap, name: ^sluice-placement$}\n",
             "    patch: |\n      - op: replace\n",
             "        path: /data/placement.json\n        value: |\n",
             Indented(PlacementText(*files.plan, "sluice-expert-",
                                    ".sluice-expert.sluice.svc"),
                      10),
             "  - target: {kind: StatefulSet, labelSelector: ",
             "app.kubernetes.io/component=expert}\n    patch: |\n",
             "      - op: replace\n        path: /spec/replicas\n",
             "        value: ", files.plan->hosts.size(), "\n",
             Resources(most, 6));
}

std::string KubernetesFile(const FilesRequest& files) {
  const ClusterPlan& plan = *files.plan;
  const bool hosts = !plan.hosts.empty();
  std::string stages;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    stages += Cat(i == 0 ? "" : ",", "sluice-stage-", i,
                  ".sluice-stage.sluice.svc:7001");
  }
  std::string text = Cat(
      "# A folder of its own in k8s/overlays, as kustomization.yaml; the model "
      "is that\n# of components/download (REPOSITORY in its Job).\n",
      "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
      "namespace: sluice\nresources:\n  - ../../base\ncomponents:\n",
      "  - ../../components/cert-manager\n  - ../../components/download\n",
      hosts ? "  - ../../components/experts\n" : "",
      "configMapGenerator:\n  - name: sluice-replica\n    behavior: merge\n",
      "    literals:\n      - SLUICE_NUM_STAGES=", plan.stages.size(),
      "\n      - SLUICE_STAGES=", stages, "\n");
  text += Cat("patches:\n", KubernetesStages(files));
  return hosts ? text + KubernetesHosts(files) : text;
}

std::string SlurmFile(const FilesRequest& files) {
  std::string options = Words(StageOptions(files));
  options.erase(0, 1);
  return Cat("# One stage on each node.\nsbatch -N ", files.plan->stages.size(),
             " --exclusive --mem=", MostStageMebibytes(files),
             "M deploy/slurm/sluice.sbatch --model ", files.model,
             " --stage-options \"", options, "\"\n");
}

}  // namespace

StatusOr<Starter> ParseStarter(const std::string& name) {
  for (const auto& [starter, known] : kStarters) {
    if (name == known) return starter;
  }
  return InvalidArgument("must be up, compose, kubernetes or slurm, got '",
                         name, "'");
}

StatusOr<std::string> PlanFile(Starter starter, const FilesRequest& files) {
  switch (starter) {
    case Starter::kUp:
      if (OnOneMachine(files)) return UpCommand(files);
      return files.plan->hosts.empty() ? HostsFile(files) : UpCommands(files);
    case Starter::kCompose:
      return ComposeFile(files);
    case Starter::kKubernetes:
      return KubernetesFile(files);
    case Starter::kSlurm:
      break;
  }
  if (!files.plan->hosts.empty()) {
    return InvalidArgument("a Slurm job has no hosts of experts");
  }
  return SlurmFile(files);
}

}  // namespace sluice::plan
