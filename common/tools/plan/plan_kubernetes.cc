// A kustomization.yaml over k8s/base.
#include <algorithm>
#include <string>

#include "common/base/cat.h"
#include "common/tools/plan/plan_parts.h"

namespace sluice::plan {
namespace {

// The claim that pods see as a folder.
constexpr std::string_view kClaimFolder = "/models/";
// Within a pod's template.
constexpr char kContainer[] = "/spec/template/spec/containers/0";

std::string Operation(const std::string& op, const std::string& path,
                      const std::string& value) {
  return Cat("      - {op: ", op, ", path: ", path, ", value: ", Quoted(value),
             "}\n");
}

// Replaces a value that must be `old`: another base is refused by kustomize.
std::string Replaced(const std::string& path, const std::string& old,
                     const std::string& value) {
  return Operation("test", path, old) + Operation("replace", path, value);
}

std::string Argument(const std::string& argument) {
  return Operation("add", Cat(kContainer, "/args/-"), argument);
}

std::string Resource(const std::string& name, const std::string& value) {
  std::string text;
  for (const char* kind : {"requests", "limits"}) {
    text += Operation("replace",
                      Cat(kContainer, "/resources/", kind, "/", name), value);
  }
  return text;
}

std::string Target(const std::string& kind, const std::string& component) {
  return Cat("  - target: {kind: ", kind,
             ", labelSelector: app.kubernetes.io/component=", component,
             "}\n    patch: |\n");
}

// Returns the room on a node's disk for what is packed of `weights`.
std::string PackedRoom(uint64_t weights) {
  const uint64_t gibibytes = DiskGibibytes(weights);
  const std::string volume = "/spec/template/spec/volumes/1/";
  return Cat(
      Operation("test", volume + "name", "packed"),
      Operation("replace", volume + "emptyDir/sizeLimit", Cat(gibibytes, "Gi")),
      Resource("ephemeral-storage", Cat(gibibytes + 4, "Gi")));
}

// Returns the most that one of the processes takes, as containers are limited;
// 0 on GPUs. RESOURCE_EXHAUSTED if a machine gives less.
StatusOr<uint64_t> MostMebibytes(const std::vector<PlannedProcess>& processes) {
  uint64_t most = 0;
  for (const PlannedProcess& process : processes) {
    if (process.gpus > 0) continue;
    most = std::max(most, Mebibytes(process.bytes, process.machine->memory));
  }
  for (const PlannedProcess& process : processes) {
    const uint64_t given = process.machine->memory >> 20;
    if (process.gpus > 0 || most <= given) continue;
    return InvalidArgument(
        "the pods of a StatefulSet have one size: the largest needs ", most,
        "Mi, machine ", process.machine->name, " gives ", given, "Mi");
  }
  return most;
}

// INVALID_ARGUMENT for a plan whose pods are not alike.
Status CheckAlike(const PlannedParts& parts) {
  const int32_t gpus = parts.stages[0].gpus;
  for (const PlannedProcess& stage : parts.stages) {
    if (stage.gpus == gpus) continue;
    return InvalidArgument(
        "the pods of a StatefulSet have one number of GPUs: ", "a stage of ",
        parts.stages[0].machine->name, " has ", gpus, ", of ",
        stage.machine->name, " ", stage.gpus);
  }
  for (const PlannedProcess& host : parts.hosts) {
    if (host.gpus == 0) continue;
    return InvalidArgument("machine ", host.machine->name,
                           ": pods with experts are on CPUs, its device is ",
                           host.machine->device);
  }
  return OkStatus();
}

std::string GpuLines(const PlannedParts& parts) {
  const int32_t gpus = parts.stages[0].gpus;
  if (gpus < 2) return "";
  std::string device = "--device=cuda:0";
  for (int32_t i = 1; i < gpus; ++i) device += Cat(",", i);
  // components/gpu adds the device behind the base's arguments.
  return Cat(Replaced(Cat(kContainer, "/args/14"), "--device=cuda:0", device),
             Resource("nvidia.com~1gpu", Cat(gpus)));
}

// Returns the patches that say where pods find the model, for `component`.
std::string ModelPatch(const FilesRequest& files) {
  if (files.of_hub) return "";
  const std::string env = Cat(kContainer, "/env/0/");
  return Operation("test", env + "name", "SLUICE_MODEL") +
         Operation("replace", env + "value", files.model);
}

// Returns the arguments of the initial container that pulls a stage's layers.
std::string PullLines(const FilesRequest& files, const PlannedParts& parts) {
  if (!files.of_hub || !parts.hosts.empty()) return "";
  const std::string args = "/spec/template/spec/initContainers/0/args";
  return Cat(
      Operation("test", args + "/2", "--num-stages=$(SLUICE_NUM_STAGES)"),
      Operation("add", args + "/-", Cat("--layers=", parts.layers())),
      Operation("replace",
                "/spec/template/spec/volumes/0/ephemeral/"
                "volumeClaimTemplate/spec/resources/requests/storage",
                Cat(DiskGibibytes(WeightBytes(files)), "Gi")));
}

StatusOr<std::string> KubernetesStages(const FilesRequest& files,
                                       const PlannedParts& parts) {
  SLUICE_ASSIGN_OR_RETURN(const uint64_t most, MostMebibytes(parts.stages));
  uint64_t weights = 0;
  for (const auto& stage : files.plan->stages) {
    weights = std::max(weights, stage.bytes.weights);
  }
  std::string text =
      Cat(Target("StatefulSet", "stage"),
          "      - {op: replace, path: /spec/replicas, value: ",
          parts.stages.size(), "}\n",
          Replaced(Cat(kContainer, "/args/3"), "--layers=auto",
                   Cat("--layers=", parts.layers())),
          GpuLines(parts), ModelPatch(files), PullLines(files, parts));
  for (const auto& [name, value] : StageOptions(files, parts)) {
    text += Argument(Cat("--", name, "=", value));
  }
  if (most > 0) text += Resource("memory", Cat(most, "Mi"));
  if (!parts.on_gpus) text += PackedRoom(weights);
  return text;
}

StatusOr<std::string> KubernetesHosts(const FilesRequest& files,
                                      const PlannedParts& parts) {
  SLUICE_ASSIGN_OR_RETURN(const uint64_t most, MostMebibytes(parts.hosts));
  uint64_t weights = 0;
  for (const PlannedProcess& host : parts.hosts) {
    weights = std::max(weights, host.bytes);
  }
  std::string text = Cat(
      "  - target: {kind: ConfigMap, name: ^sluice-placement$}\n",
      "    patch: |\n      - op: replace\n",
      "        path: /data/placement.json\n        value: |\n",
      Indented(
          PlacementText(files, "sluice-expert-", ".sluice-expert.sluice.svc"),
          10),
      Target("StatefulSet", "expert"),
      "      - {op: replace, path: /spec/replicas, value: ", parts.hosts.size(),
      "}\n", ModelPatch(files));
  for (const auto& [name, value] : HostOptions(files, parts)) {
    text += Argument(Cat("--", name, "=", value));
  }
  return Cat(text, Resource("memory", Cat(most, "Mi")), PackedRoom(weights));
}

// Returns the patches of components/download: the planned model, by the image's
// own command, on the claim that all pods share.
std::string Download(const FilesRequest& files) {
  return Cat(
      "  - target: {kind: Job, name: ^sluice-download$}\n    patch: |\n",
      Operation("replace", Cat(kContainer, "/image"), "sluice"),
      "      - {op: replace, path: ", kContainer,
      "/command, value: [sluice]}\n",
      "      - {op: replace, path: ", kContainer, "/args, value: [pull, ",
      Quoted(files.model), ", --link=/models/model]}\n",
      "      - {op: replace, path: ", kContainer,
      "/env/0, value: {name: HF_HOME, value: /models/hf}}\n",
      "      - {op: test, path: ", kContainer, "/env/2/name, value: HF_HOME}\n",
      "      - {op: remove, path: ", kContainer, "/env/2}\n",
      "  - target: {kind: PersistentVolumeClaim, name: ^sluice-models$}\n",
      "    patch: |\n",
      Operation("replace", "/spec/resources/requests/storage",
                Cat(DiskGibibytes(WeightBytes(files)), "Gi")));
}

std::string Components(const FilesRequest& files, const PlannedParts& parts) {
  std::string text = "components:\n  - ../../components/cert-manager\n";
  if (files.of_hub) {
    text += Cat("  - ../../components/",
                parts.hosts.empty() ? "pull" : "download", "\n");
  }
  if (parts.on_gpus) text += "  - ../../components/gpu\n";
  if (!parts.hosts.empty()) text += "  - ../../components/experts\n";
  return text;
}

std::string Maps(const PlannedParts& parts) {
  std::string stages;
  for (size_t i = 0; i < parts.stages.size(); ++i) {
    stages += Cat(i == 0 ? "" : ",", "sluice-stage-", i,
                  ".sluice-stage.sluice.svc:7001");
  }
  return Cat(
      "configMapGenerator:\n  - name: sluice-replica\n    behavior: merge\n",
      "    literals:\n      - SLUICE_NUM_STAGES=", parts.stages.size(),
      "\n      - SLUICE_STAGES=", stages, "\n");
}

// Names the model that components/pull fetches.
std::string HubModelPatch(const FilesRequest& files,
                          const PlannedParts& parts) {
  if (!files.of_hub || !parts.hosts.empty()) return "";
  return Cat("  - target: {kind: ConfigMap, name: ^sluice-hub$}\n",
             "    patch: |\n",
             Operation("replace", "/data/HUB_MODEL", files.model));
}

std::string Images(const PlannedParts& parts) {
  const std::string of = "    newName: registry.example.com/sluice\n";
  std::string text =
      Cat("images:\n  - name: sluice\n", of, "    newTag: ", ImageTag(), "\n");
  if (!parts.on_gpus) return text;
  return Cat(text, "  - name: sluice-cuda\n", of, "    newTag: ", ImageTag(),
             "-cuda\n");
}

}  // namespace

StatusOr<std::string> KubernetesFile(const FilesRequest& files,
                                     const PlannedParts& parts) {
  if (!files.of_hub && !files.model.starts_with(kClaimFolder)) {
    return InvalidArgument("pods cannot read ", files.model,
                           ": --source names a hub's ORG/NAME, or a path below "
                           "/models, the claim sluice-models");
  }
  SLUICE_RETURN_IF_ERROR(CheckAlike(parts));
  SLUICE_ASSIGN_OR_RETURN(const std::string stages,
                          KubernetesStages(files, parts));
  std::string text =
      Cat("# A folder of its own in k8s/overlays, as kustomization.yaml.\n",
          "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
          "namespace: sluice\nresources:\n  - ../../base\n",
          Components(files, parts), Maps(parts), "patches:\n",
          HubModelPatch(files, parts), stages);
  if (!files.of_hub) {
    text += Target("Deployment", "gateway") + ModelPatch(files);
  }
  if (!parts.hosts.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string hosts,
                            KubernetesHosts(files, parts));
    text += hosts;
    if (files.of_hub) text += Download(files);
  }
  return text + Images(parts);
}

}  // namespace sluice::plan
