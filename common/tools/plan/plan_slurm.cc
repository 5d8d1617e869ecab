// A script that submits deploy/slurm/sluice.sbatch.
#include <algorithm>
#include <string>

#include "common/base/cat.h"
#include "common/tools/plan/plan_parts.h"

namespace sluice::plan {
namespace {

// How the nodes of a job are told apart.
struct Nodes {
  bool alike = true;       // any nodes of the partition will do
  std::string names;       // in the order of the pipeline, then hosts
  std::string stages;      // of each node with any, with commas
  uint64_t mebibytes = 0;  // of each node; 0: all it has
};

Nodes NodesOf(const PlannedParts& parts) {
  Nodes nodes;
  const PlannedBox& first = parts.boxes[0];
  for (const PlannedBox& box : parts.boxes) {
    nodes.alike =
        nodes.alike && box.given == first.given &&
        (box.stages.empty() || box.stages.size() == first.stages.size());
    nodes.names += Cat(nodes.names.empty() ? "" : ",", box.name());
    if (!box.stages.empty()) {
      nodes.stages += Cat(nodes.stages.empty() ? "" : ",", box.stages.size());
    }
    nodes.mebibytes =
        std::max(nodes.mebibytes, Mebibytes(box.bytes, box.given));
  }
  if (!nodes.alike || parts.on_gpus) nodes.mebibytes = 0;
  if (nodes.alike) nodes.stages = Cat(first.stages.size());
  return nodes;
}

Status CheckNodes(const PlannedParts& parts) {
  const PlannedBox& first = parts.boxes[0];
  size_t next = 0;
  for (const PlannedBox& box : parts.boxes) {
    if (box.gpus != first.gpus) {
      return InvalidArgument(
          "the nodes of a job have one --gres: ", first.name(), " uses ",
          first.gpus, " GPUs, ", box.name(), " ", box.gpus);
    }
    if (box.hosts.size() > (box.stages.empty() ? 1 : 0)) {
      return InvalidArgument("node ", box.name(), " has ", box.hosts.size(),
                             " hosts of experts and ", box.stages.size(),
                             " stages: a node of a job has stages or one host");
    }
    for (const size_t stage : box.stages) {
      if (stage == next++) continue;
      return InvalidArgument("the stages of node ", box.name(),
                             " do not follow each other");
    }
  }
  for (const PlannedProcess& host : parts.hosts) {
    if (host.gpus == 0) continue;
    return InvalidArgument("the hosts of experts of a job compute on CPUs, ",
                           host.machine->name, " has ", host.device);
  }
  for (const PlannedProcess& stage : parts.stages) {
    if (stage.gpus == parts.stages[0].gpus) continue;
    return InvalidArgument(
        "the stages of a job have one number of GPUs: ", parts.stages[0].gpus,
        " on ", parts.stages[0].machine->name, ", ", stage.gpus, " on ",
        stage.machine->name);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> SlurmFile(const FilesRequest& files,
                                const PlannedParts& parts) {
  SLUICE_RETURN_IF_ERROR(CheckNodes(parts));
  const Nodes nodes = NodesOf(parts);
  std::string text =
      "# On a node where sbatch is, in a folder that all nodes see; SLUICE_BIN "
      "is the\n# folder of the binaries (deploy/slurm/README.md).\n";
  std::string model = Word(files.model);
  if (files.of_hub) {
    text += Cat("model=$(\"${SLUICE_BIN:+$SLUICE_BIN/}sluice\" pull ", model,
                ") || exit\n");
    model = "\"$model\"";
  }
  if (!parts.hosts.empty()) {
    text += Cat("cat > placement.json <<'END'\n",
                PlacementText(files, "expert-", ""), "END\n");
  }
  text += Cat("sbatch -N ", parts.boxes.size(),
              " --exclusive --mem=", nodes.mebibytes,
              nodes.mebibytes > 0 ? "M" : "");
  const int32_t gpus = parts.boxes[0].gpus;
  if (gpus > 0) text += Cat(" --gres=gpu:", gpus);
  if (!nodes.alike) text += Cat(" --nodelist=", nodes.names);
  text += Cat(" deploy/slurm/sluice.sbatch --model ", model, " --layers ",
              parts.layers(), " --stages-per-node ", nodes.stages);
  if (!nodes.alike) text += Cat(" --node-order ", nodes.names);
  if (gpus > 0) text += Cat(" --gpus-per-stage ", parts.stages[0].gpus);
  if (!parts.hosts.empty()) text += " --placement placement.json";
  std::string options = Words(StageOptions(files, parts));
  text += Cat(" --stage-options ", Word(options.substr(1)));
  options = Words(HostOptions(files, parts));
  if (!parts.hosts.empty() && !options.empty()) {
    text += Cat(" --expert-options ", Word(options.substr(1)));
  }
  return text + "\n";
}

}  // namespace sluice::plan
