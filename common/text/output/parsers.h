#ifndef SLUICE_COMMON_TEXT_OUTPUT_PARSERS_H_
#define SLUICE_COMMON_TEXT_OUTPUT_PARSERS_H_

#include <memory>

#include "common/text/output/output_parser.h"

namespace sluice {

class ToolTypes;

// The parsers behind NewOutputParser. `tools`: the request's functions, which
// its outputs share.

// Formats whose markup is text: <think>, <tool_call>, JSON.
std::unique_ptr<OutputParser> NewMarkupParser(
    const OutputFormat& format, const OutputRequest& request,
    std::shared_ptr<const ToolTypes> tools);
// Messages to channels and recipients, set apart by special tokens.
std::unique_ptr<OutputParser> NewHarmonyParser(
    const Vocabulary& vocabulary, std::shared_ptr<const ToolTypes> tools);

// Names of harmony's tokens, in the order of HarmonyToken.
inline constexpr std::string_view kHarmonyTokens[] = {
    "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
    "<|end|>",   "<|call|>",    "<|return|>"};
enum class HarmonyToken {
  kStart,
  kChannel,
  kConstrain,
  kMessage,
  kEnd,
  kCall,
  kReturn,
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_PARSERS_H_
