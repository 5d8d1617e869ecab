// The command line of deploy/local/up, and hosts.toml of `up --hosts`.
#include <algorithm>
#include <string>

#include "common/base/cat.h"
#include "common/tools/plan/plan_parts.h"

namespace sluice::plan {
namespace {

bool IsLoopback(const std::string& place) {
  return place == "localhost" || place == "127.0.0.1";
}

bool IsHere(const FilesRequest& files, const PlannedParts& parts) {
  if (parts.boxes.size() != 1) return false;
  const PlannedBox& box = parts.boxes[0];
  const bool only = files.request->machines.machines.size() == 1;
  return IsLoopback(box.place) || (only && box.machine->address.empty());
}

std::string DevicesOf(const std::vector<PlannedProcess>& processes) {
  std::string list;
  for (const PlannedProcess& process : processes) {
    list += Cat(list.empty() ? "" : ",", process.device);
  }
  return list;
}

std::string UpCommand(const FilesRequest& files, const PlannedParts& parts) {
  std::string text = "# Starts the planned cluster on this machine.\n";
  Options options = {{"model", files.model},
                     {"stages", Cat(parts.stages.size())},
                     {"layers", parts.layers()}};
  if (parts.on_gpus) options.emplace_back("device", DevicesOf(parts.stages));
  if (!parts.hosts.empty()) {
    text += Cat("cat > placement.json <<'END'\n",
                PlacementText(files, "expert-", ""), "END\n");
    options.emplace_back("placement", "placement.json");
    if (parts.on_gpus) {
      options.emplace_back("expert-device", DevicesOf(parts.hosts));
    }
  }
  return Cat(text, "deploy/local/up", Words(options),
             Words(StageOptions(files, parts)), "\n");
}

// Returns the model's path on each host, and how it comes there.
std::string ModelLines(const FilesRequest& files, const PlannedParts& parts) {
  if (!files.of_hub) return Cat("model = ", Quoted(files.model), "\n");
  const std::string link = Cat("models/", LinkName(files.model));
  std::string text = "# The model comes to each host's home folder by\n";
  for (const PlannedProcess& stage : parts.stages) {
    text +=
        Cat("#   ", stage.machine->name, ": mkdir -p models && sluice pull ",
            files.model, " --layers ", stage.layers, " --link ", link, "\n");
  }
  return Cat(text, "model = ", Quoted(link), "\n");
}

// Returns a host's table; its stages are neighbours from `first` on.
std::string HostTable(const PlannedParts& parts, const PlannedBox& box) {
  std::string layers;
  std::string devices;
  for (const size_t i : box.stages) {
    layers += Cat(layers.empty() ? "" : ",", parts.stages[i].layers);
    devices += Cat(devices.empty() ? "" : ",", parts.stages[i].device);
  }
  std::string text =
      Cat("\n[hosts.", Quoted(box.name()), "]\nstages = ", box.stages.size(),
          "\nlayers = ", Quoted(layers), "\n");
  if (parts.on_gpus) text += Cat("device = ", Quoted(devices), "\n");
  if (!box.machine->address.empty()) {
    text += Cat("address = ", Quoted(box.machine->address), "\n");
  }
  return text;
}

Status CheckHosts(const PlannedParts& parts) {
  if (!parts.hosts.empty()) {
    return InvalidArgument(
        "up --hosts starts no hosts of experts, the plan has ",
        parts.hosts.size(), " (", parts.hosts[0].machine->name,
        "): systemd, kubernetes and slurm do");
  }
  for (const PlannedBox& box : parts.boxes) {
    if (IsLoopback(box.place) && parts.boxes.size() > 1) {
      return InvalidArgument("machine ", box.name(), " has the address ",
                             box.place, ", which the others cannot call");
    }
    if (box.stages.back() - box.stages.front() + 1 != box.stages.size()) {
      return InvalidArgument("stages ", box.stages.front(), " and ",
                             box.stages.back(), " are on ", box.name(),
                             ", those between are not: the stages of a host "
                             "follow each other");
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> UpFile(const FilesRequest& files,
                             const PlannedParts& parts) {
  if (IsHere(files, parts)) return UpCommand(files, parts);
  SLUICE_RETURN_IF_ERROR(CheckHosts(parts));
  std::string text =
      Cat("# hosts.toml: deploy/local/up --hosts hosts.toml",
          Words(StageOptions(files, parts)), "\n", ModelLines(files, parts));
  for (const PlannedBox& box : parts.boxes) text += HostTable(parts, box);
  return text;
}

}  // namespace sluice::plan
