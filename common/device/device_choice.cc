#include "common/device/device_choice.h"

#include <algorithm>
#include <string_view>

#include "common/base/cat.h"
#include "common/base/log.h"
#include "common/device/make_backends.h"

namespace sluice {
namespace {

bool IsOf(std::string_view text, std::string_view characters) {
  return !text.empty() &&
         text.find_first_not_of(characters) == std::string_view::npos;
}

// Whether `text` may name a GPU.
bool IsGpu(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr size_t kMostDigits = 4;
  if (IsOf(text, kDigits)) return text.size() <= kMostDigits;
  // A slice's id was GPU-../N/N in MIG-GPU-../N/N once.
  const bool is_id = text.starts_with("GPU-") || text.starts_with("MIG-");
  return is_id && IsOf(text.substr(4), "0123456789abcdefABCDEFGPU-/");
}

}  // namespace

StatusOr<DeviceChoice> ParseDevice(const std::string& text) {
  constexpr std::string_view kPrefix = "cuda:";
  if (text == "cpu") return DeviceChoice();
  if (text == "cuda") return DeviceChoice{true, {"0"}};
  DeviceChoice choice = {true, {}};
  bool good = text.starts_with(kPrefix);
  for (size_t at = kPrefix.size(); good && at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    choice.gpus.push_back(text.substr(at, end - at));
    good = IsGpu(choice.gpus.back());
    at = end + 1;
  }
  if (!good) {
    return InvalidArgument(
        "the device must be auto, cpu, cuda or cuda:G[,G...] with numbers or ",
        "ids of GPUs (0, GPU-1b2c3d4e), got '", text, "'");
  }
  const auto is_slice = [](const std::string& gpu) {
    return gpu.starts_with("MIG-");
  };
  if (choice.gpus.size() > 1 && std::ranges::any_of(choice.gpus, is_slice)) {
    return InvalidArgument("device '", text,
                           "' names a MIG slice among several GPUs: a process ",
                           "sees one slice and nothing beside it");
  }
  for (size_t i = 1; i < choice.gpus.size(); ++i) {
    const auto own = choice.gpus.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(choice.gpus.begin(), own, *own) == own) continue;
    return InvalidArgument("device '", text, "' names GPU ", *own,
                           " twice; --ranks gives one GPU several ranks");
  }
  return choice;
}

StatusOr<int32_t> RanksOn(const std::string& device, int32_t ranks) {
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(device));
  const auto gpus = static_cast<int32_t>(choice.gpus.size());
  if (gpus <= 1 || ranks == gpus) return ranks;
  if (ranks == 1) return gpus;
  return InvalidArgument("device '", device, "' has ", gpus,
                         " GPUs, a rank on each: ranks must be ", gpus,
                         ", got ", ranks);
}

StatusOr<Numerics> ParseNumerics(const std::string& text,
                                 const DeviceChoice& device) {
  if (text == "canonical") return Numerics::kCanonical;
  if (text != "auto" && text != "fast") {
    return InvalidArgument(
        "the numerics must be auto, fast or canonical, got '", text, "'");
  }
  if (device.cuda) return Numerics::kFast;
  if (text == "auto") return Numerics::kCanonical;
  return InvalidArgument(
      "numerics 'fast' are those of a GPU's matrix units: a CPU has canonical "
      "ones alone");
}

Status CheckNumerics(const std::string& device, const std::string& numerics) {
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(device));
  return ParseNumerics(numerics, choice).status();
}

Status CheckActivations(kernels::BlockActivations activations,
                        const std::string& device,
                        const std::string& numerics) {
  if (activations != kernels::BlockActivations::kF32) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(device));
  SLUICE_ASSIGN_OR_RETURN(const Numerics parsed,
                          ParseNumerics(numerics, choice));
  if (parsed == Numerics::kCanonical) return OkStatus();
  return InvalidArgument(
      "activations 'f32' exclude numerics '", numerics,
      "', which are fast on a GPU: its matrix units compute in BF16; "
      "canonical numerics take them");
}

Status CheckWidened(kernels::BlockActivations activations,
                    const WeightFormatSet& formats, const std::string& gpu) {
  const bool widens = activations == kernels::BlockActivations::kF32;
  if (!widens || gpu.empty() || !formats.has_blocks()) return OkStatus();
  return InvalidArgument(
      "activations 'f32' with weights ", formats.names(), ": a GPU, ", gpu,
      ", multiplies blocks with activations of eight bits alone; CPUs take "
      "them, and weights f32 or bf16 need no blocks");
}

Status CheckDevice(const std::string& text) {
  return FindDevices(text).status();
}

int TakeGpu(std::span<const uint64_t> available, int32_t place) {
  const size_t count = available.size();
  const size_t first = place < 0 ? 0 : static_cast<size_t>(place);
  int taken = -1;
  for (size_t i = 0; i < count; ++i) {
    const size_t gpu = (first + i) % count;
    if (available[gpu] == 0) continue;
    if (taken >= 0 && available[gpu] <= available[static_cast<size_t>(taken)]) {
      continue;
    }
    taken = static_cast<int>(gpu);
    if (place >= 0) break;  // in turn
  }
  return taken;
}

StatusOr<std::string> ChooseDevice(const std::string& text, int32_t place) {
  if (text != "auto") {
    SLUICE_RETURN_IF_ERROR(CheckDevice(text));
    return text;
  }
  const auto count = CountGpus();
  std::string why = count.ok() ? "" : Message(count.status());
  const int32_t first = std::max(place, 0);
  std::vector<FoundDevice> gpus(static_cast<size_t>(count.ok() ? *count : 0));
  std::vector<uint64_t> available(gpus.size());
  for (size_t i = 0; i < gpus.size(); ++i) {
    const size_t gpu = (static_cast<size_t>(first) + i) % gpus.size();
    const auto found = FindDevices(Cat("cuda:", gpu));
    if (!found.ok()) {
      why += Cat(why.empty() ? "" : "; ", Message(found.status()));
      continue;
    }
    gpus[gpu] = (*found)[0];
    available[gpu] = gpus[gpu].available;
    // It costs memory to look at more (FindDevices).
    if (place >= 0 && available[gpu] > 0) break;
  }
  if (const int taken = TakeGpu(available, place); taken >= 0) {
    const FoundDevice& gpu = gpus[static_cast<size_t>(taken)];
    LogInfo("device auto: cuda:", taken, ", ", gpu.name, ", ",
            gpu.available >> 20, " MiB may be taken");
    return Cat("cuda:", taken);
  }
  if (why.empty()) why = "no GPU has free memory";
  LogInfo("device auto: the CPU, since ", why);
  return std::string("cpu");
}

}  // namespace sluice
