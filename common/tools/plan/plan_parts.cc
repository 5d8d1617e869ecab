#include "common/tools/plan/plan_parts.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "common/base/build_info.h"
#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/model_config/layer_range.h"

namespace sluice::plan {
namespace {

using placement::Machine;

constexpr uint64_t kSlackPart = 10;
constexpr uint64_t kSlackBytes = uint64_t{256} << 20;
constexpr std::string_view kCuda = "cuda";

// Returns the GPUs that a device names; none for a CPU. INVALID_ARGUMENT for
// another device.
StatusOr<std::vector<std::string>> GpusOf(const Machine& machine) {
  const std::string& device = machine.device;
  std::vector<std::string> gpus;
  if (device.empty() || device == "cpu") return gpus;
  if (device == kCuda) return std::vector<std::string>{"0"};
  bool fits = device.starts_with("cuda:");
  for (size_t begin = kCuda.size() + 1; fits && begin <= device.size();) {
    const size_t end = std::min(device.find(',', begin), device.size());
    gpus.push_back(device.substr(begin, end - begin));
    fits = !gpus.back().empty() &&
           std::ranges::all_of(gpus.back(), [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '/';
           });
    begin = end + 1;
  }
  if (fits) return gpus;
  return InvalidArgument("machine ", machine.name,
                         ": device must be cpu or cuda:G[,G...], got '", device,
                         "'");
}

std::string DeviceOf(const std::vector<std::string>& gpus, size_t from,
                     size_t count) {
  if (count == 0) return "cpu";
  std::string device = "cuda:";
  for (size_t i = from; i < from + count; ++i) {
    device += Cat(i == from ? "" : ",", gpus[i]);
  }
  return device;
}

// Gives each of the `stages` of a machine as many GPUs.
Status ShareGpus(const FilesRequest& files,
                 const std::vector<PlannedProcess*>& stages) {
  const Machine& machine = *stages[0]->machine;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> gpus, GpusOf(machine));
  if (gpus.empty()) return OkStatus();
  if (gpus.size() % stages.size() != 0) {
    return InvalidArgument(
        "machine ", machine.name, " has ", gpus.size(), " GPUs (",
        machine.device, ") and ", stages.size(),
        " stages: each stage takes as many GPUs, of its own");
  }
  const size_t each = gpus.size() / stages.size();
  const auto ranks = static_cast<size_t>(files.request->loads.ranks);
  if (each != ranks) {
    return InvalidArgument("machine ", machine.name, " gives each stage ", each,
                           " GPUs, a rank on each: plan with --ranks ", each,
                           ", got ", ranks);
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    stages[i]->device = DeviceOf(gpus, i * each, each);
    stages[i]->gpus = static_cast<int32_t>(each);
  }
  return OkStatus();
}

PlannedProcess On(const FilesRequest& files, int32_t machine) {
  PlannedProcess process;
  process.machine =
      &files.request->machines.machines[static_cast<size_t>(machine)];
  process.place = process.machine->address.empty() ? process.machine->name
                                                   : process.machine->address;
  process.device = "cpu";
  return process;
}

Status AddStages(const FilesRequest& files, PlannedParts& parts) {
  for (const placement::StagePlan& stage : files.plan->stages) {
    PlannedProcess& process =
        parts.stages.emplace_back(On(files, stage.machine));
    process.layers = ToText(std::vector<LayerRange>{stage.range});
    process.bytes = stage.total();
  }
  std::map<const Machine*, std::vector<PlannedProcess*>> of_machine;
  for (PlannedProcess& stage : parts.stages) {
    of_machine[stage.machine].push_back(&stage);
  }
  for (const auto& [machine, stages] : of_machine) {
    SLUICE_RETURN_IF_ERROR(ShareGpus(files, stages));
  }
  return OkStatus();
}

Status AddHosts(const FilesRequest& files, PlannedParts& parts) {
  for (const placement::HostPlan& host : files.plan->hosts) {
    PlannedProcess& process = parts.hosts.emplace_back(On(files, host.machine));
    process.bytes = host.experts;
    SLUICE_ASSIGN_OR_RETURN(const auto gpus, GpusOf(*process.machine));
    if (gpus.size() > 1) {
      return InvalidArgument("machine ", process.machine->name,
                             ": a host of experts computes on one GPU, got ",
                             process.machine->device);
    }
    process.device = DeviceOf(gpus, 0, gpus.size());
    process.gpus = static_cast<int32_t>(gpus.size());
  }
  return OkStatus();
}

PlannedBox& BoxOf(const std::string& place, std::vector<PlannedBox>& boxes) {
  for (PlannedBox& box : boxes) {
    if (box.place == place) return box;
  }
  boxes.emplace_back();
  boxes.back().place = place;
  boxes.back().on_gpus = true;
  return boxes.back();
}

// Adds a process to its box. Returns its number there.
PlannedBox& AddTo(const PlannedProcess& process,
                  std::vector<PlannedBox>& boxes) {
  PlannedBox& box = BoxOf(process.place, boxes);
  if (box.machine == nullptr) box.machine = process.machine;
  box.gpus += process.gpus;
  box.on_gpus = box.on_gpus && process.gpus > 0;
  if (process.gpus == 0) box.bytes += process.bytes;
  return box;
}

void AddBoxes(const FilesRequest& files, PlannedParts& parts) {
  for (size_t i = 0; i < parts.stages.size(); ++i) {
    PlannedBox& box = AddTo(parts.stages[i], parts.boxes);
    parts.stages[i].at = static_cast<int32_t>(box.stages.size());
    box.stages.push_back(i);
  }
  for (size_t i = 0; i < parts.hosts.size(); ++i) {
    PlannedBox& box = AddTo(parts.hosts[i], parts.boxes);
    parts.hosts[i].at = static_cast<int32_t>(box.hosts.size());
    box.hosts.push_back(i);
  }
  for (const Machine& machine : files.request->machines.machines) {
    const std::string& place =
        machine.address.empty() ? machine.name : machine.address;
    for (PlannedBox& box : parts.boxes) {
      if (box.place != place) continue;
      box.given += machine.memory;
      ++box.machines;
    }
  }
}

}  // namespace

std::string PlannedParts::layers() const {
  std::string list;
  for (const PlannedProcess& stage : stages) {
    list += Cat(list.empty() ? "" : ",", stage.layers);
  }
  return list;
}

StatusOr<PlannedParts> PartsOf(const FilesRequest& files) {
  PlannedParts parts;
  SLUICE_RETURN_IF_ERROR(AddStages(files, parts));
  SLUICE_RETURN_IF_ERROR(AddHosts(files, parts));
  AddBoxes(files, parts);
  size_t on_gpus = 0;
  for (const auto* const kind : {&parts.stages, &parts.hosts}) {
    for (const PlannedProcess& process : *kind) on_gpus += process.gpus > 0;
  }
  parts.on_gpus = on_gpus > 0;
  parts.mixed =
      parts.on_gpus && on_gpus < parts.stages.size() + parts.hosts.size();
  return parts;
}

bool TakeTurns(const PlannedParts& parts) {
  return parts.boxes.size() == 1 && parts.stages.size() > 1 && !parts.on_gpus;
}

Options HostOptions(const FilesRequest& files, const PlannedParts& parts) {
  Options options;
  if (!files.weights.empty() && files.weights != "auto") {
    options.emplace_back("weights", files.weights);
  }
  // CPUs and GPUs compute the same bits with these alone.
  if (parts.mixed) options.emplace_back("numerics", "canonical");
  return options;
}

Options StageOptions(const FilesRequest& files, const PlannedParts& parts) {
  const LayerLoadOptions& loads = files.request->loads;
  Options options = {{"kv-blocks", Cat(files.plan->kv_blocks)},
                     {"max-context", Cat(files.request->context)}};
  for (auto& option : HostOptions(files, parts)) {
    options.push_back(std::move(option));
  }
  if (files.plan->kv_type != kernels::WeightType::kF32) {
    options.emplace_back("kv-type", ToString(KvChoice(files.plan->kv_type)));
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
    words += Cat(" --", name, " ", Word(value));
  }
  return words;
}

std::string Word(std::string_view text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_./:,=@+").find(c) != std::string_view::npos;
  });
  if (plain) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string Quoted(const std::string& text) { return DumpJson(Json(text)); }

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

std::string PlacementText(const FilesRequest& files, const std::string& prefix,
                          const std::string& behind, int port) {
  ExpertPlacement named = files.plan->placement;
  for (size_t i = 0; i < named.hosts.size(); ++i) {
    named.hosts[i].name = Cat(prefix, i);
    named.hosts[i].address = Cat(prefix, i, behind, ":", port);
  }
  return ToText(named);
}

uint64_t Mebibytes(uint64_t bytes, uint64_t given) {
  const uint64_t slack = std::max(bytes / kSlackPart, kSlackBytes);
  return std::min(bytes + slack, given) >> 20;
}

uint64_t DiskGibibytes(uint64_t bytes) {
  return ((bytes + bytes / kSlackPart) >> 30) + 1;
}

uint64_t WeightBytes(const FilesRequest& files) {
  uint64_t bytes = 0;
  for (const auto& stage : files.plan->stages) bytes += stage.bytes.weights;
  for (const auto& host : files.plan->hosts) bytes += host.experts;
  return bytes;
}

std::string LinkName(const std::string& model) {
  std::string name = model.substr(model.find('/') + 1);
  for (char& c : name) {
    if (c == '@' || c == ':' || c == '/') c = '-';
  }
  return name;
}

std::string ImageTag() { return std::string(BuildVersion()); }

}  // namespace sluice::plan
