// An override of docker/compose.yaml.
#include <string>

#include "common/base/cat.h"
#include "common/tools/plan/plan_parts.h"

namespace sluice::plan {
namespace {

// Where a model of the machine is in the containers.
constexpr char kModelFolder[] = "/srv/model";

// The model as the containers have it.
struct ComposeModel {
  std::string path;
  std::string folder;  // the machine's, of its model; empty: that of models
};

ComposeModel ModelOf(const FilesRequest& files) {
  if (files.of_hub) return {Cat("/models/", LinkName(files.model)), ""};
  // Files of a hub's snapshot are links to blobs beside it.
  size_t cut = files.model.find("/snapshots/");
  const bool is_file =
      files.model.ends_with(".gguf") || files.model.ends_with(".m");
  if (cut == std::string::npos) {
    cut = is_file ? files.model.rfind('/') : files.model.size();
  }
  return {kModelFolder + files.model.substr(cut), files.model.substr(0, cut)};
}

// Returns a string of YAML in which compose replaces no variable.
std::string Item(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '$' ? "$$" : std::string(1, c);
  return Word(escaped) == escaped ? escaped : Quoted(escaped);
}

std::string ComposeCommand(const std::string& program, const std::string& model,
                           const Options& options) {
  std::string text = Cat("    command:\n      - ", program,
                         "\n      - --metrics-listen=0.0.0.0:9100\n      - ",
                         Item("--model=" + model), "\n      - --insecure\n");
  for (const auto& [name, value] : options) {
    text += Cat("      - ", Item(Cat("--", name, "=", value)), "\n");
  }
  return text;
}

std::string Volumes(const ComposeModel& model) {
  if (model.folder.empty()) return "";
  return Cat(
      "    volumes:\n      - type: bind\n        source: ", Item(model.folder),
      "\n        target: ", kModelFolder, "\n        read_only: true\n");
}

std::string WaitsForPull(const FilesRequest& files) {
  if (!files.of_hub) return "";
  return "      pull: {condition: service_completed_successfully}\n";
}

// Returns the service's device as its container counts it, with the image and
// the devices that it needs.
std::string DeviceLines(const PlannedProcess& process) {
  if (process.gpus == 0) return "";
  std::string ids;
  for (const char c : process.device.substr(process.device.find(':') + 1)) {
    ids += c == ',' ? "\", \"" : std::string(1, c);
  }
  return Cat(
      "    image: sluice:${SLUICE_VERSION:-", ImageTag(), "}-cuda\n",
      "    build: {target: cuda}\n    shm_size: 8gb\n",
      "    deploy:\n      resources:\n        reservations:\n",
      "          devices:\n            - {driver: nvidia, device_ids: [\"", ids,
      "\"], capabilities: [gpu]}\n");
}

std::string DeviceWithin(const PlannedProcess& process) {
  std::string device = "cuda:";
  for (int32_t i = 0; i < process.gpus; ++i)
    device += Cat(i == 0 ? "" : ",", i);
  return process.gpus == 0 ? "cpu" : device;
}

std::string Limit(const PlannedProcess& process, const PlannedBox& box) {
  if (process.gpus > 0) return "";
  return Cat("    mem_limit: ", Mebibytes(process.bytes, box.given), "m\n");
}

std::string ComposeGateway(const FilesRequest& files,
                           const PlannedParts& parts) {
  const ComposeModel model = ModelOf(files);
  std::string stages;
  std::string after;
  for (size_t i = 0; i < parts.stages.size(); ++i) {
    stages += Cat(i == 0 ? "" : ",", "stage-", i, ":7001");
    after += Cat("      stage-", i, ": {condition: service_started}\n");
  }
  Options options = {{"listen", "0.0.0.0:8000"},
                     {"stages", stages},
                     {"allowed-hosts", "gateway"},
                     {"drain-timeout", "120"}};
  if (TakeTurns(parts)) options.emplace_back("max-plans-in-flight", "1");
  return Cat("  gateway:\n    depends_on:\n", after, WaitsForPull(files),
             Volumes(model),
             ComposeCommand("sluice-gateway", model.path, options),
             "      - --open\n      - --access-log\n");
}

// Returns what stages and hosts of experts have alike.
std::string ServiceLines(const FilesRequest& files, const PlannedParts& parts,
                         const PlannedProcess& process) {
  std::string text = Cat(Limit(process, parts.boxes[0]), DeviceLines(process),
                         Volumes(ModelOf(files)));
  if (files.of_hub) text += Cat("    depends_on:\n", WaitsForPull(files));
  if (!parts.hosts.empty()) {
    text += "    configs: [{source: plan, target: /etc/sluice/plan.json}]\n";
  }
  return text;
}

std::string ComposeStage(const FilesRequest& files, const PlannedParts& parts,
                         size_t index) {
  const PlannedProcess& stage = parts.stages[index];
  Options options = {{"listen", "0.0.0.0:7001"},
                     {"layers", stage.layers},
                     {"device", DeviceWithin(stage)},
                     {"packed", "/packed"},
                     {"drain-timeout", "60"}};
  if (!parts.hosts.empty()) {
    options.emplace_back("placement", "/etc/sluice/plan.json");
  }
  for (auto& option : StageOptions(files, parts)) {
    options.push_back(std::move(option));
  }
  std::string text = Cat("  stage-", index, ":\n");
  if (index > 1) {
    text += "    extends: {file: compose.yaml, service: stage-0}\n";
  }
  return Cat(text, ServiceLines(files, parts, stage),
             ComposeCommand("sluice-stage", ModelOf(files).path, options));
}

std::string ComposeHost(const FilesRequest& files, const PlannedParts& parts,
                        size_t index) {
  const PlannedProcess& host = parts.hosts[index];
  Options options = {{"listen", "0.0.0.0:7101"},
                     {"placement", "/etc/sluice/plan.json"},
                     {"host", Cat("planned-expert-", index)},
                     {"device", DeviceWithin(host)},
                     {"packed", "/packed"}};
  for (auto& option : HostOptions(files, parts)) {
    options.push_back(std::move(option));
  }
  return Cat("  planned-expert-", index,
             ":\n    extends: {file: compose.yaml, service: stage-0}\n",
             ServiceLines(files, parts, host),
             ComposeCommand("sluice-expert", ModelOf(files).path, options));
}

std::string ComposePull(const FilesRequest& files) {
  if (!files.of_hub) return "";
  return Cat("  pull:\n    profiles: [cpu]\n    command: [",
             Quoted(files.model), ", --link, ",
             Quoted(Cat("/models/", LinkName(files.model))), "]\n");
}

}  // namespace

StatusOr<std::string> ComposeFile(const FilesRequest& files,
                                  const PlannedParts& parts) {
  if (parts.boxes.size() != 1) {
    std::string names;
    for (const PlannedBox& box : parts.boxes) {
      names += Cat(names.empty() ? "" : ", ", box.name());
    }
    return InvalidArgument("one engine starts the containers of one machine, ",
                           "the plan has ", parts.boxes.size(), " (", names,
                           "); machines of one address are one");
  }
  std::string text =
      "# Beside docker/compose.yaml, as docker/plan.yaml:\n"
      "#   docker compose -f docker/compose.yaml -f docker/plan.yaml --profile "
      "cpu up\nservices:\n";
  text += ComposePull(files) + ComposeGateway(files, parts);
  for (size_t i = 0; i < parts.stages.size(); ++i) {
    text += ComposeStage(files, parts, i);
  }
  if (parts.stages.size() == 1) {
    text += "  stage-1:\n    deploy: {replicas: 0}\n";
  }
  for (size_t i = 0; i < parts.hosts.size(); ++i)
    text += ComposeHost(files, parts, i);
  if (parts.hosts.empty()) return text;
  return Cat(text, "configs:\n  plan:\n    content: |\n",
             Indented(PlacementText(files, "planned-expert-", ""), 6));
}

}  // namespace sluice::plan
