#include "common/grammar/compile_text.h"

#include <utility>

#include "common/text/bridge/bridge.h"
#include "common/text/bridge_buffer.h"

namespace sluice {
namespace {

SluiceGrammarLimits LimitsOf(const GrammarLimits& limits, Trial trial) {
  return {limits.max_bytes, static_cast<uint32_t>(limits.max_levels),
          static_cast<uint32_t>(limits.max_enum_values),
          static_cast<uint32_t>(limits.max_compile_ms),
          trial == Trial::kYes ? 1u : 0u};
}

}  // namespace

StatusOr<std::shared_ptr<const Grammar>> CompileText(
    std::shared_ptr<const GrammarVocabulary> vocabulary,
    const GrammarSpec& spec, const GrammarLimits& limits, Trial trial) {
  SluiceGrammar* handle = nullptr;
  BridgeBuffer message;
  {
    const BridgeCall call;
    const int code = sluice_grammar_new(
        vocabulary->handle(), static_cast<uint32_t>(spec.kind),
        BridgeData(spec.text), spec.text.size(), LimitsOf(limits, trial),
        &handle, message.out());
    SLUICE_RETURN_IF_ERROR(message.ToStatus(code));
  }
  return std::make_shared<const Grammar>(std::move(vocabulary), handle);
}

StatusOr<std::string> CheckSchemaText(std::string_view schema,
                                      const GrammarLimits& limits,
                                      Trial trial) {
  BridgeBuffer checked;
  const BridgeCall call;
  SLUICE_RETURN_IF_ERROR(checked.ToStatus(
      sluice_schema_check(BridgeData(schema), schema.size(),
                          LimitsOf(limits, trial), checked.out())));
  return std::string(checked.bytes());
}

StatusOr<std::string> LarkOfGbnfText(std::string_view gbnf,
                                     const GrammarLimits& limits, Trial trial) {
  BridgeBuffer lark;
  const BridgeCall call;
  SLUICE_RETURN_IF_ERROR(lark.ToStatus(sluice_gbnf_to_lark(
      BridgeData(gbnf), gbnf.size(), LimitsOf(limits, trial), lark.out())));
  return std::string(lark.bytes());
}

StatusOr<std::string> StringTerminalText(std::string_view schema,
                                         const GrammarLimits& limits) {
  BridgeBuffer terminal;
  const BridgeCall call;
  SLUICE_RETURN_IF_ERROR(terminal.ToStatus(
      sluice_string_terminal(BridgeData(schema), schema.size(),
                             LimitsOf(limits, Trial::kNo), terminal.out())));
  return std::string(terminal.bytes());
}

}  // namespace sluice
