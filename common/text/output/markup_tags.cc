#include "common/text/output/markup_tags.h"

#include <iterator>

namespace sluice {
namespace {

#define SLUICE_DSML "\uFF5CDSML\uFF5C"
#define SLUICE_MINIMAX "]<]minimax[>["
#define SLUICE_DEEPSEEK(words) "<\uFF5C" words "\uFF5C>"

constexpr ReasoningTags kReasoning[] = {
    {},                                         // kNone
    {kThink, kThinkEnd, "", {}},                // kThink
    {},                                         // kHarmony
    {"[THINK]", "[/THINK]", "", {}},            // kMistral
    {"<seed:think>", "</seed:think>", "", {}},  // kSeed
    {"<|START_THINKING|>",
     "<|END_THINKING|>",
     "",
     {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},           // kCommand
    {"<|channel>thought", "<channel|>", "<|channel>", {}},  // kGemma
    {"<|inner_prefix|>", "<|inner_suffix|>", "", {}},       // kApertus
    {kThink,                                                // kThinkAnswer
     kThinkEnd,
     "",
     {"<answer>", "</answer>"},
     "<answer>",
     /*has_text_marks=*/true},
    {kThink,  // kThinkResponse
     kThinkEnd,
     "",
     {"<response>", "</response>"},
     "<response></response>",
     /*has_text_marks=*/true},
    {"<mm:think>", "</mm:think>", "", {}},  // kMiniMaxM3
    {"Here are my reasoning steps:",        // kApriel
     "[BEGIN FINAL RESPONSE]",
     "",
     {"", "[END FINAL RESPONSE]"},
     "",
     /*has_text_marks=*/true},
};

constexpr CallMarkup kCalls[] = {
    {},                            // kNone
    {.shape = CallShape::kTagged,  // kGlm
     .open = kToolCall,
     .close = kToolCallEnd},
    {.shape = CallShape::kTagged,  // kQwenCoder
     .open = kToolCall,
     .close = kToolCallEnd,
     .function = kFunction,
     .function_end = kFunctionEnd,
     .parameter = kParameter,
     .parameter_end = kParameterEnd,
     .has_line_feeds = true},
    {.shape = CallShape::kTagged,  // kHermes
     .open = kToolCall,
     .close = kToolCallEnd},
    {.shape = CallShape::kBareJson, .open = kPythonTag},  // kLlamaJson
    {.shape = CallShape::kChannels},                      // kHarmony
    {.shape = CallShape::kTagged,                         // kGeneric
     .open = kToolCall,
     .close = kToolCallEnd},
    {.shape = CallShape::kNamed,  // kMistral
     .open = "[TOOL_CALLS]",
     .id_tag = "[CALL_ID]",
     .separator = "[ARGS]"},
    {.shape = CallShape::kJsonList, .open = "[TOOL_CALLS]"},  // kMistralList
    {.shape = CallShape::kNamed,                              // kDeepSeekV3
     .section = SLUICE_DEEPSEEK("tool\u2581calls\u2581begin"),
     .section_end = SLUICE_DEEPSEEK("tool\u2581calls\u2581end"),
     .open = SLUICE_DEEPSEEK("tool\u2581call\u2581begin"),
     .close = SLUICE_DEEPSEEK("tool\u2581call\u2581end"),
     .separator = SLUICE_DEEPSEEK("tool\u2581sep"),
     .type = "function",
     .is_fenced = true},
    {.shape = CallShape::kNamed,  // kDeepSeekV31
     .section = SLUICE_DEEPSEEK("tool\u2581calls\u2581begin"),
     .section_end = SLUICE_DEEPSEEK("tool\u2581calls\u2581end"),
     .open = SLUICE_DEEPSEEK("tool\u2581call\u2581begin"),
     .close = SLUICE_DEEPSEEK("tool\u2581call\u2581end"),
     .separator = SLUICE_DEEPSEEK("tool\u2581sep")},
    {.shape = CallShape::kParameters,  // kDeepSeekV32
     .open = "<" SLUICE_DSML "function_calls>",
     .close = "</" SLUICE_DSML "function_calls>",
     .function = "<" SLUICE_DSML "invoke name=",
     .function_end = "</" SLUICE_DSML "invoke>",
     .parameter = "<" SLUICE_DSML "parameter name=",
     .parameter_end = "</" SLUICE_DSML "parameter>",
     .quotes_names = true,
     .tells_strings = true},
    {.shape = CallShape::kParameters,  // kDeepSeekV4
     .open = "<" SLUICE_DSML "tool_calls>",
     .close = "</" SLUICE_DSML "tool_calls>",
     .function = "<" SLUICE_DSML "invoke name=",
     .function_end = "</" SLUICE_DSML "invoke>",
     .parameter = "<" SLUICE_DSML "parameter name=",
     .parameter_end = "</" SLUICE_DSML "parameter>",
     .quotes_names = true,
     .tells_strings = true},
    {.shape = CallShape::kParameters,  // kMiniMax
     .open = "<minimax:tool_call>",
     .close = "</minimax:tool_call>",
     .function = "<invoke name=",
     .function_end = "</invoke>",
     .parameter = "<parameter name=",
     .parameter_end = kParameterEnd,
     .quotes_names = true},
    {.shape = CallShape::kParameters,  // kSeed
     .open = "<seed:tool_call>",
     .close = "</seed:tool_call>",
     .function = kFunction,
     .function_end = kFunctionEnd,
     .parameter = kParameter,
     .parameter_end = kParameterEnd},
    {.shape = CallShape::kNamed,  // kKimi
     .section = "<|tool_calls_section_begin|>",
     .section_end = "<|tool_calls_section_end|>",
     .open = "<|tool_call_begin|>",
     .close = "<|tool_call_end|>",
     .name_prefix = "functions.",
     .separator = "<|tool_call_argument_begin|>",
     .is_numbered = true},
    {.shape = CallShape::kJsonList, .open = "<|tool_call|>"},  // kGranite
    {.shape = CallShape::kJsonList,                            // kPhi
     .open = "<|tool_call|>",
     .close = "<|/tool_call|>"},
    {.shape = CallShape::kJsonList,  // kCommand
     .open = "<|START_ACTION|>",
     .close = "<|END_ACTION|>",
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .id_key = "tool_call_id"},
    {.shape = CallShape::kPythonList,  // kLfm
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>"},
    {.shape = CallShape::kJsonList,  // kHunyuan
     .open = "<tool_calls>",
     .close = "</tool_calls>"},
    {.shape = CallShape::kJsonList,  // kNemotron
     .open = "<TOOLCALL>",
     .close = "</TOOLCALL>"},
    {.shape = CallShape::kGemma,  // kGemma
     .open = "<|tool_call>",
     .close = "<tool_call|>"},
    {.shape = CallShape::kJsonList,  // kCommandPlus
     .open = "Action:",
     .close = kFence,
     .is_fenced = true,
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .no_calls = {"directly_answer", "directly-answer"}},
    {.shape = CallShape::kElements,  // kMiniMaxM3
     .open = SLUICE_MINIMAX "<tool_call>",
     .close = SLUICE_MINIMAX "</tool_call>",
     .function = SLUICE_MINIMAX "<invoke name=",
     .function_end = SLUICE_MINIMAX "</invoke>",
     .parameter = SLUICE_MINIMAX "<",
     .parameter_end = SLUICE_MINIMAX "</",
     .quotes_names = true},
    {.shape = CallShape::kJsonList, .open = "functools"},  // kFirefunction
    {.shape = CallShape::kJsonList,                        // kLongCat
     .open = "<longcat_tool_call>",
     .close = "</longcat_tool_call>"},
    {.shape = CallShape::kJsonList, .open = "<|function_call|>"},  // kGigaChat
    {.shape = CallShape::kJsonList,                                // kApertus
     .open = "<|tools_prefix|>",
     .close = "<|tools_suffix|>",
     .has_name_keys = true},
};

#undef SLUICE_DSML
#undef SLUICE_MINIMAX
#undef SLUICE_DEEPSEEK

}  // namespace

const ReasoningTags& TagsOf(ReasoningFormat format) {
  return kReasoning[static_cast<size_t>(format)];
}

const CallMarkup& MarkupOf(ToolFormat format) {
  return kCalls[static_cast<size_t>(format)];
}

std::vector<std::string_view> TagsIn(const OutputFormat& format) {
  const ReasoningTags& tags = TagsOf(format.reasoning);
  const CallMarkup& calls = MarkupOf(format.tools);
  std::vector<std::string_view> all;
  for (const std::string_view tag :
       {tags.open, tags.close, tags.open_token, tags.around_content[0],
        tags.around_content[1], calls.section, calls.section_end, calls.open,
        calls.close, calls.id_tag, calls.separator}) {
    if (!tag.empty()) all.push_back(tag);
  }
  if (calls.shape == CallShape::kGemma) all.push_back(kGemmaQuote);
  if (calls.shape == CallShape::kElements) all.push_back(kMiniMaxMark);
  return all;
}

}  // namespace sluice
