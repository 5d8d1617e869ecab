#include "common/text/jinja.h"

#include <algorithm>

#include "common/text/bridge/bridge.h"
#include "common/text/bridge_buffer.h"

namespace sluice {

StatusOr<JinjaVariables> JinjaVariables::Parse(std::string_view json) {
  SluiceVariables* handle = nullptr;
  BridgeBuffer message;
  const int code = [&] {
    const BridgeCall call;
    return sluice_variables_new(BridgeData(json), json.size(), &handle,
                                message.out());
  }();
  SLUICE_RETURN_IF_ERROR(message.ToStatus(code));
  return JinjaVariables(handle);
}

void JinjaVariables::Free::operator()(SluiceVariables* handle) const {
  const BridgeCall call;
  sluice_variables_free(handle);
}

StatusOr<std::unique_ptr<JinjaTemplate>> JinjaTemplate::Compile(
    std::string_view source) {
  SluiceTemplate* handle = nullptr;
  BridgeBuffer message;
  SLUICE_RETURN_IF_ERROR(message.ToStatus(sluice_template_new(
      BridgeData(source), source.size(), &handle, message.out())));
  return std::unique_ptr<JinjaTemplate>(new JinjaTemplate(handle));
}

JinjaTemplate::~JinjaTemplate() { sluice_template_free(handle_); }

StatusOr<std::set<std::string, std::less<>>> JinjaTemplate::Reads() const {
  BridgeBuffer output;
  SLUICE_RETURN_IF_ERROR(
      output.ToStatus(sluice_template_reads(handle_, output.out())));
  std::set<std::string, std::less<>> names;
  std::string_view lines = output.bytes();
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    names.emplace(line);
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
  }
  return names;
}

StatusOr<std::string> JinjaTemplate::Render(
    std::string_view names, const JinjaVariables& common, int64_t now,
    std::optional<TimePoint> deadline) const {
  uint64_t steps = kMaxSteps;
  if (deadline) {
    const double seconds = Seconds(*deadline - Clock::now());
    steps = static_cast<uint64_t>(std::clamp(seconds, 0.0, 1.0) * kMaxSteps);
  }
  BridgeBuffer output;
  const int code = [&] {
    const BridgeCall call;
    return sluice_template_render(handle_, BridgeData(names), names.size(),
                                  common.handle(), now, kMaxOutputBytes, steps,
                                  output.out());
  }();
  if (code == SLUICE_OUT_OF_STEPS && steps < kMaxSteps) {
    return DeadlineExceeded("the request's deadline passed: ", output.bytes());
  }
  SLUICE_RETURN_IF_ERROR(output.ToStatus(code));
  return std::string(output.bytes());
}

}  // namespace sluice
