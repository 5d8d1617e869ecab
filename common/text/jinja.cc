#include "common/text/jinja.h"

#include "common/text/bridge/bridge.h"
#include "common/text/bridge_buffer.h"

namespace sluice {

StatusOr<std::unique_ptr<JinjaTemplate>> JinjaTemplate::Compile(
    std::string_view source) {
  SluiceTemplate* handle = nullptr;
  BridgeBuffer message;
  SLUICE_RETURN_IF_ERROR(message.ToStatus(sluice_template_new(
      BridgeData(source), source.size(), &handle, message.out())));
  return std::unique_ptr<JinjaTemplate>(new JinjaTemplate(handle));
}

JinjaTemplate::~JinjaTemplate() { sluice_template_free(handle_); }

StatusOr<std::string> JinjaTemplate::Render(std::string_view context,
                                            int64_t now) const {
  BridgeBuffer output;
  const int code = [&] {
    const BridgeCall call;
    return sluice_template_render(handle_, BridgeData(context), context.size(),
                                  now, kMaxOutputBytes, output.out());
  }();
  SLUICE_RETURN_IF_ERROR(output.ToStatus(code));
  return std::string(output.bytes());
}

}  // namespace sluice
