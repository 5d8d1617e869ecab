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

Status CheckDevice(const std::string& text) {
  return FindDevices(text).status();
}

StatusOr<std::string> ChooseDevice(const std::string& text, int32_t place) {
  if (text != "auto") {
    SLUICE_RETURN_IF_ERROR(CheckDevice(text));
    return text;
  }
  const auto count = CountGpus();
  std::string why = count.ok() ? "" : Message(count.status());
  for (int i = 0; count.ok() && i < *count; ++i) {
    const std::string gpu = Cat("cuda:", (std::max(place, 0) + i) % *count);
    const auto found = FindDevices(gpu);
    if (found.ok()) {
      LogInfo("device auto: ", gpu, ", ", (*found)[0].name);
      return gpu;
    }
    why += Cat(why.empty() ? "" : "; ", Message(found.status()));
  }
  LogInfo("device auto: the CPU, since ", why);
  return std::string("cpu");
}

}  // namespace sluice
