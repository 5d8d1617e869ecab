#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "common/text/output/event_writer.h"
#include "common/text/output/markup_tags.h"
#include "common/text/output/output_parser.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"

namespace sluice {
namespace {

constexpr std::string_view kToolNames[] = {
    "none",        "glm",     "qwen3-coder", "hermes",
    "llama3-json", "harmony", "generic"};
constexpr std::string_view kReasoningNames[] = {"none", "think", "harmony"};

// Tokens of the formats in text that a vocabulary may call special.
constexpr std::string_view kMarkup[] = {kThink,       kThinkEnd,    kToolCall,
                                        kToolCallEnd, kArgKey,      kArgKeyEnd,
                                        kArgValue,    kArgValueEnd, kPythonTag};

bool Mentions(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// Every token that begins, names or ends a message.
bool HasHarmonyTokens(const Vocabulary& vocabulary) {
  return std::all_of(std::begin(kHarmonyTokens), std::end(kHarmonyTokens),
                     [&](std::string_view name) {
                       return name == "<|constrain|>" ||
                              vocabulary.Find(name).has_value();
                     });
}

ToolFormat ToolsByTemplate(std::string_view chat_template) {
  if (Mentions(chat_template, kArgKey)) return ToolFormat::kGlm;
  if (Mentions(chat_template, kFunction)) return ToolFormat::kQwenCoder;
  if (Mentions(chat_template, kToolCall)) return ToolFormat::kHermes;
  const bool json = Mentions(chat_template, "\"parameters\": ") ||
                    Mentions(chat_template, kPythonTag);
  return json ? ToolFormat::kLlamaJson : ToolFormat::kNone;
}

// The index of `name`, or one of `names`' size.
size_t IndexOf(std::span<const std::string_view> names, std::string_view name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) -
                             names.begin());
}

Status UnknownName(std::string_view what, std::string_view name,
                   std::span<const std::string_view> names) {
  std::string known = "auto";
  for (const std::string_view one : names) known += ", " + std::string(one);
  return InvalidArgument(what, " '", name, "': none of ", known);
}

}  // namespace

std::string_view ToolFormatName(ToolFormat format) {
  return kToolNames[static_cast<size_t>(format)];
}

std::string_view ReasoningFormatName(ReasoningFormat format) {
  return kReasoningNames[static_cast<size_t>(format)];
}

StatusOr<OutputFormat> ChooseOutputFormat(std::string_view chat_template,
                                          const Vocabulary& vocabulary,
                                          std::string_view tool_format,
                                          std::string_view reasoning_format) {
  const size_t tools = IndexOf(kToolNames, tool_format);
  if (tools == std::size(kToolNames) && tool_format != "auto") {
    return UnknownName("tool format", tool_format, kToolNames);
  }
  const size_t reasoning = IndexOf(kReasoningNames, reasoning_format);
  if (reasoning == std::size(kReasoningNames) && reasoning_format != "auto") {
    return UnknownName("reasoning format", reasoning_format, kReasoningNames);
  }
  const bool has_tokens = HasHarmonyTokens(vocabulary);
  const bool asked = tool_format == "harmony" || reasoning_format == "harmony";
  const bool open =
      (tool_format == "auto" || tool_format == "harmony") &&
      (reasoning_format == "auto" || reasoning_format == "harmony");
  const bool shown = has_tokens && Mentions(chat_template, "<|channel|>");
  if (asked || (shown && open)) {
    if (!open) {
      return InvalidArgument("tool format '", tool_format,
                             "' with reasoning format '", reasoning_format,
                             "': harmony is both or neither");
    }
    if (!has_tokens) {
      return InvalidArgument(
          "format 'harmony': the vocabulary lacks its tokens (<|start|>, "
          "<|channel|>, <|message|>, <|end|>, <|call|>, <|return|>)");
    }
    return OutputFormat{ToolFormat::kHarmony, ReasoningFormat::kHarmony};
  }
  OutputFormat format;
  format.tools = tool_format == "auto" ? ToolsByTemplate(chat_template)
                                       : static_cast<ToolFormat>(tools);
  const bool thinks =
      Mentions(chat_template, kThink) || Mentions(chat_template, kThinkEnd);
  format.reasoning = static_cast<ReasoningFormat>(reasoning);
  if (reasoning_format == "auto") {
    format.reasoning =
        thinks ? ReasoningFormat::kThink : ReasoningFormat::kNone;
  }
  return format;
}

std::unique_ptr<OutputParser> NewOutputParser(const OutputFormat& format,
                                              const Vocabulary& vocabulary,
                                              const OutputRequest& request) {
  return std::move(NewOutputParsers(format, vocabulary, request, 1).front());
}

std::vector<std::unique_ptr<OutputParser>> NewOutputParsers(
    const OutputFormat& format, const Vocabulary& vocabulary,
    const OutputRequest& request, size_t count) {
  const auto tools = std::make_shared<const ToolTypes>(request.tools);
  std::vector<std::unique_ptr<OutputParser>> parsers;
  for (size_t i = 0; i < count; ++i) {
    parsers.push_back(format.tools == ToolFormat::kHarmony
                          ? NewHarmonyParser(vocabulary, tools)
                          : NewMarkupParser(format, request, tools));
  }
  return parsers;
}

std::vector<TokenId> KeptTokens(const OutputFormat& format,
                                const Vocabulary& vocabulary) {
  std::span<const std::string_view> names = kMarkup;
  if (format.tools == ToolFormat::kHarmony) names = kHarmonyTokens;
  if (format == OutputFormat{}) names = {};
  std::vector<TokenId> kept;
  for (const std::string_view name : names) {
    const auto id = vocabulary.Find(name);
    if (id && vocabulary.IsSpecial(*id)) kept.push_back(*id);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

bool EndsInReasoning(const OutputFormat& format, std::string_view prompt_end) {
  return format.reasoning == ReasoningFormat::kThink &&
         TrimBlanks(prompt_end).ends_with(kThink);
}

}  // namespace sluice
