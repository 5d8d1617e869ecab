#include "common/device/device_choice.h"

#include <charconv>
#include <string_view>

#include "common/device/make_backends.h"

namespace sluice {

StatusOr<DeviceChoice> ParseDevice(const std::string& text) {
  constexpr std::string_view kPrefix = "cuda:";
  if (text == "cpu") return DeviceChoice();
  if (text == "cuda") return DeviceChoice{true, 0};
  DeviceChoice choice = {.cuda = true};
  if (text.starts_with(kPrefix)) {
    if (text.find(',') != std::string::npos) {
      return Unimplemented("device '", text,
                           "': a stage computes on one GPU; start a stage for "
                           "each");
    }
    const char* const end = text.data() + text.size();
    const auto [stop, error] =
        std::from_chars(text.data() + kPrefix.size(), end, choice.index);
    if (error == std::errc() && stop == end && choice.index >= 0) {
      return choice;
    }
  }
  return InvalidArgument(
      "the device must be cpu, cuda or cuda:N with a GPU's number, got '", text,
      "'");
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
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(text));
  if (!choice.cuda) return OkStatus();
  BackendOptions options;
  options.device = text;
  return MakeBackends(options).status();
}

}  // namespace sluice
