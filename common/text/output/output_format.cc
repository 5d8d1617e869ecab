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

// In the order of ToolFormat and of ReasoningFormat.
constexpr std::string_view kToolNames[] = {
    "none",         "glm",          "qwen3-coder",   "hermes",
    "llama3-json",  "harmony",      "generic",       "mistral",
    "mistral-list", "deepseek-v3",  "deepseek-v3.1", "deepseek-v3.2",
    "deepseek-v4",  "minimax-m2",   "seed-oss",      "kimi-k2",
    "granite",      "phi4",         "command",       "lfm2",
    "hunyuan",      "nemotron",     "gemma4",        "command-r-plus",
    "minimax-m3",   "firefunction", "longcat",       "gigachat3.1",
    "apertus"};
constexpr std::string_view kReasoningNames[] = {
    "none",         "think",          "harmony",    "mistral",
    "seed-oss",     "command",        "gemma4",     "apertus",
    "think-answer", "think-response", "minimax-m3", "apriel"};

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

// A text that a format's template has and others lack; the first one counts.
struct Shown {
  std::string_view text;
  ToolFormat format;
  std::string_view beside = "";  // and this one, too
  std::string_view token = "";   // and the vocabulary this token
};
constexpr Shown kShown[] = {
    {"[ARGS]", ToolFormat::kMistral, "[TOOL_CALLS]"},
    {"[TOOL_CALLS]", ToolFormat::kMistralList},
    {"\uFF5CDSML\uFF5C", ToolFormat::kDeepSeekV32, "function_calls>"},
    {"\uFF5CDSML\uFF5C", ToolFormat::kDeepSeekV4},
    {"tool\u2581calls\u2581begin", ToolFormat::kDeepSeekV3, "```json"},
    {"tool\u2581calls\u2581begin", ToolFormat::kDeepSeekV31},
    {"<minimax:tool_call>", ToolFormat::kMiniMax},
    {kMiniMaxMark, ToolFormat::kMiniMaxM3, "<invoke name="},
    {"<seed:tool_call>", ToolFormat::kSeed},
    {"<|tool_call_argument_begin|>", ToolFormat::kKimi},
    {"<|/tool_call|>", ToolFormat::kPhi},
    {"<|/tool|>", ToolFormat::kPhi},
    {"<|tool_call|>", ToolFormat::kGranite},
    {"<|START_ACTION|>", ToolFormat::kCommand},
    {"\"tool_name\"", ToolFormat::kCommandPlus, "Action:"},
    {"<|tool_call_start|>", ToolFormat::kLfm},
    {"<|tool_list_start|>", ToolFormat::kLfm},
    {"List of tools: [", ToolFormat::kLfm, "", "<|tool_call_start|>"},
    {"<|tool_call>call:", ToolFormat::kGemma},
    {"<TOOLCALL>", ToolFormat::kNemotron},
    {kArgKey, ToolFormat::kGlm},
    {kFunction, ToolFormat::kQwenCoder},
    {"<tool_calls>[", ToolFormat::kHunyuan},
    {"<tool_calls>\\n{", ToolFormat::kHunyuan},
    {"functools[", ToolFormat::kFirefunction},
    {"<longcat_tool_call>", ToolFormat::kLongCat},
    {"<|function_call|>", ToolFormat::kGigaChat},
    {"<|tools_prefix|>", ToolFormat::kApertus},
};

// Returns whether a template shows a call as JSON right behind <tool_call>, or
// nothing that tells what stands there: other formats have marks of their own.
bool ShowsTaggedJson(std::string_view chat_template) {
  constexpr size_t kNear = 256;
  for (size_t at = chat_template.find(kToolCall); at != chat_template.npos;
       at = chat_template.find(kToolCall, at + 1)) {
    const auto behind = chat_template.substr(at, kNear);
    for (const std::string_view sign :
         {R"("name")", R"(\"name\")", "'name'", "tojson"}) {
      if (Mentions(behind, sign)) return true;
    }
  }
  return Mentions(chat_template, kToolCall) &&
         !Mentions(chat_template, "invoke name=");
}

// Returns whether a template shows a call as {"name": .., "parameters": ..}, or
// the tag before one.
bool ShowsBareJson(std::string_view chat_template) {
  if (Mentions(chat_template, kPythonTag)) return true;
  return Mentions(chat_template, "\"parameters\": ") &&
         Mentions(chat_template, "\"name\": ") &&
         !Mentions(chat_template, "\"tool_name\"") &&
         !Mentions(chat_template, "invoke name=");
}

ToolFormat ToolsByTemplate(std::string_view chat_template,
                           const Vocabulary& vocabulary) {
  for (const Shown& shown : kShown) {
    if (Mentions(chat_template, shown.text) &&
        Mentions(chat_template, shown.beside) &&
        (shown.token.empty() || vocabulary.Find(shown.token))) {
      return shown.format;
    }
  }
  if (ShowsTaggedJson(chat_template)) return ToolFormat::kHermes;
  return ShowsBareJson(chat_template) ? ToolFormat::kLlamaJson
                                      : ToolFormat::kNone;
}

ReasoningFormat ReasoningByTemplate(std::string_view chat_template) {
  for (size_t i = std::size(kReasoningNames); i-- > 0;) {
    const auto format = static_cast<ReasoningFormat>(i);
    const ReasoningTags& tags = TagsOf(format);
    if (tags.open.empty() || !Mentions(chat_template, tags.shown_by)) continue;
    if (Mentions(chat_template, tags.open) ||
        Mentions(chat_template, tags.close)) {
      return format;
    }
  }
  return ReasoningFormat::kNone;
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
  format.tools = tool_format == "auto"
                     ? ToolsByTemplate(chat_template, vocabulary)
                     : static_cast<ToolFormat>(tools);
  format.reasoning = reasoning_format == "auto"
                         ? ReasoningByTemplate(chat_template)
                         : static_cast<ReasoningFormat>(reasoning);
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
  const bool nests = MarkupOf(format.tools).shape == CallShape::kElements;
  const auto tools = std::make_shared<const ToolTypes>(request.tools,
                                                       /*keeps_schemas=*/nests);
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
  std::vector<std::string_view> names = TagsIn(format);
  if (format.tools == ToolFormat::kHarmony) {
    names.assign(std::begin(kHarmonyTokens), std::end(kHarmonyTokens));
  } else if (format != OutputFormat{}) {
    names.insert(names.end(), std::begin(kMarkup), std::end(kMarkup));
  }
  std::vector<TokenId> kept;
  for (const std::string_view name : names) {
    const auto id = vocabulary.Find(name);
    if (id && vocabulary.IsSpecial(*id)) kept.push_back(*id);
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

bool EndsInReasoning(const OutputFormat& format, std::string_view prompt_end) {
  const std::string_view open = TagsOf(format.reasoning).open;
  return !open.empty() && TrimBlanks(prompt_end).ends_with(open);
}

}  // namespace sluice
