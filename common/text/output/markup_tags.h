#ifndef SLUICE_COMMON_TEXT_OUTPUT_MARKUP_TAGS_H_
#define SLUICE_COMMON_TEXT_OUTPUT_MARKUP_TAGS_H_

#include <array>
#include <string_view>
#include <vector>

#include "common/text/output/output_parser.h"

namespace sluice {

// The markup of the formats in text.
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kToolCall = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";
inline constexpr std::string_view kArgKey = "<arg_key>";
inline constexpr std::string_view kArgKeyEnd = "</arg_key>";
inline constexpr std::string_view kArgValue = "<arg_value>";
inline constexpr std::string_view kArgValueEnd = "</arg_value>";
inline constexpr std::string_view kFunction = "<function=";
inline constexpr std::string_view kFunctionEnd = "</function>";
inline constexpr std::string_view kParameter = "<parameter=";
inline constexpr std::string_view kParameterEnd = "</parameter>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
inline constexpr std::string_view kMiniMaxMark = "]<]minimax[>[";
inline constexpr std::string_view kFence = "```";
inline constexpr std::string_view kJsonFence = "```json";
inline constexpr std::string_view kGemmaQuote = "<|\"|>";

// How reasoning is marked.
struct ReasoningTags {
  std::string_view open;  // empty: none, or by channels
  std::string_view close;
  // The token that `open` begins with, where `open` is more than a token.
  std::string_view open_token;
  // Marks around the content, which are no content.
  std::array<std::string_view, 2> around_content;
  // A text of the templates of these tags, where others have the same tags.
  std::string_view shown_by = "";
  // The marks around the content are text that an answer may spell: they count
  // at its beginning and at its end.
  bool has_text_marks = false;
};
const ReasoningTags& TagsOf(ReasoningFormat format);

// How a format writes a call's name and arguments.
enum class CallShape {
  kNone,
  kTagged,      // <tool_call>, by the text behind it: GLM, Qwen3-Coder, Hermes
  kBareJson,    // {"name": .., "parameters": ..} without a tag
  kChannels,    // harmony
  kJsonList,    // [{"name": .., "arguments": {..}}, ..]
  kPythonList,  // [NAME(K=V, ..), ..]
  kNamed,       // NAME, a separator, the arguments
  kParameters,  // a tag of the name, a tag of each parameter
  kGemma,       // call:NAME{K:V, ..}
  kElements,    // a tag of the name, an element for each parameter
};

// The markup of calls of a format. Texts are empty where it has none.
struct CallMarkup {
  CallShape shape = CallShape::kNone;
  // Around all calls of an answer, beside the calls' own tags.
  std::string_view section;
  std::string_view section_end;
  // Before and behind each call, or a list of calls.
  std::string_view open;
  std::string_view close;
  // kNamed: before the name, behind it, before the arguments, around them.
  std::string_view name_prefix;
  std::string_view id_tag;  // of an id behind the name
  std::string_view separator;
  std::string_view type;     // before the separator; the name is behind it
  bool is_numbered = false;  // a colon and a number follow the name
  // The arguments, or the list, stand in a block of Markdown.
  bool is_fenced = false;
  // kParameters, kElements: the tags of the name and of a parameter, without
  // their ends.
  std::string_view function;
  std::string_view function_end;
  std::string_view parameter;
  std::string_view parameter_end;
  bool quotes_names = false;    // <invoke name="NAME">
  bool tells_strings = false;   // <.. string="true">
  bool has_line_feeds = false;  // around each value
  // kJsonList: keys of the name and the arguments; the id's key, if written.
  std::string_view name_key = "name";
  std::string_view arguments_key = "arguments";
  std::string_view id_key;
  bool has_name_keys = false;  // {"NAME": {..}}
  // Names that say that the model calls nothing, where no function has them.
  std::array<std::string_view, 2> no_calls;
};
const CallMarkup& MarkupOf(ToolFormat format);

// Returns all tags of a format.
std::vector<std::string_view> TagsIn(const OutputFormat& format);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_MARKUP_TAGS_H_
