#ifndef SLUICE_COMMON_TEXT_OUTPUT_OUTPUT_PARSER_H_
#define SLUICE_COMMON_TEXT_OUTPUT_OUTPUT_PARSER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/text/vocabulary.h"

namespace sluice {

// The markup of tool calls and reasoning.
enum class ToolFormat {
  kNone,
  kGlm,        // <tool_call>NAME <arg_key>K</arg_key><arg_value>V</arg_value>
  kQwenCoder,  // <tool_call><function=NAME><parameter=K>V</parameter>
  kHermes,     // <tool_call>{"name": .., "arguments": ..}</tool_call>
  kLlamaJson,  // {"name": .., "parameters": ..}, perhaps after <|python_tag|>
  kHarmony,    // messages to functions.NAME
  // As kHermes; the template knows no tools, so a system message tells of them.
  kGeneric,
  kMistral,       // [TOOL_CALLS]NAME[ARGS]{..}
  kMistralList,   // [TOOL_CALLS][{"name": .., "arguments": ..}]
  kDeepSeekV3,    // R1, too: each call begins with its type, JSON in a block
  kDeepSeekV31,   // NAME, a separator, JSON
  kDeepSeekV32,   // invoke and parameter tags within function_calls
  kDeepSeekV4,    // within tool_calls
  kMiniMax,       // <invoke name="NAME"><parameter name="K">V</parameter>
  kSeed,          // <seed:tool_call>, as kQwenCoder
  kKimi,          // functions.NAME:0, a separator, JSON
  kGranite,       // <|tool_call|>[{"name": .., "arguments": ..}]
  kPhi,           // the same, closed
  kCommand,       // <|START_ACTION|>[{"tool_name": .., "parameters": ..}]
  kLfm,           // <|tool_call_start|>[NAME(K=V)]<|tool_call_end|>
  kHunyuan,       // <tool_calls>[{"name": .., "arguments": ..}]</tool_calls>
  kNemotron,      // <TOOLCALL>[{"name": .., "arguments": ..}]</TOOLCALL>
  kGemma,         // <|tool_call>call:NAME{K:V}<tool_call|>
  kCommandPlus,   // Action: [{"tool_name": .., "parameters": ..}] in a block
  kMiniMaxM3,     // <invoke name="NAME"><K>V</K>, a mark before each tag
  kFirefunction,  // functools[{"name": .., "arguments": ..}]
  kLongCat,       // <longcat_tool_call>{"name": .., "arguments": ..}, closed
  kGigaChat,      // <|function_call|>{"name": .., "arguments": ..}
  kApertus,       // <|tools_prefix|>[{"NAME": {..}}]<|tools_suffix|>
};
enum class ReasoningFormat {
  kNone,
  kThink,          // <think>..</think>
  kHarmony,        // the channel `analysis`
  kMistral,        // [THINK]..[/THINK]
  kSeed,           // <seed:think>..</seed:think>
  kCommand,        // <|START_THINKING|>..<|END_THINKING|>
  kGemma,          // the channel `thought`
  kApertus,        // <|inner_prefix|>..<|inner_suffix|>
  kThinkAnswer,    // as kThink, then <answer>..</answer>
  kThinkResponse,  // as kThink, then <response>..</response>
  kMiniMaxM3,      // <mm:think>..</mm:think>
  kApriel,         // words before it, [BEGIN FINAL RESPONSE] behind it
};

struct OutputFormat {
  ToolFormat tools = ToolFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool operator==(const OutputFormat&) const = default;
};

// As in output_format.cc: "glm", "think", "none" and so on.
std::string_view ToolFormatName(ToolFormat format);
std::string_view ReasoningFormatName(ReasoningFormat format);

// Returns the format of a model's output, by its chat template and its special
// tokens, never by its name. `tool_format`, `reasoning_format`: a name as
// above, or "auto". INVALID_ARGUMENT for an unknown name, and for harmony with
// another format or without its tokens.
StatusOr<OutputFormat> ChooseOutputFormat(
    std::string_view chat_template, const Vocabulary& vocabulary,
    std::string_view tool_format = "auto",
    std::string_view reasoning_format = "auto");

// One step of an output, in order. Calls do not overlap: kCallBegin,
// kArguments.., kCallEnd.
struct OutputEvent {
  enum class Kind {
    kContent,    // `text` follows the content so far
    kReasoning,  // `text` follows the reasoning so far
    kCallBegin,  // `text` is the function's whole name
    kArguments,  // `text` follows the arguments (JSON text) so far
    kCallEnd,    // the arguments are complete
  };
  Kind kind = Kind::kContent;
  int call = -1;     // index of the call, from 0; -1 for text
  std::string text;  // empty only for kCallEnd
  bool operator==(const OutputEvent&) const = default;
};
using OutputEvents = std::vector<OutputEvent>;

// A function that the request offers.
struct OutputTool {
  std::string name;
  std::string parameters;  // its JSON schema as text; empty: unknown
};

// The parts of a request that its parsers need.
struct OutputRequest {
  // Empty (also for tool_choice "none"): markup of calls is content.
  std::vector<OutputTool> tools;
  // The prompt ends within reasoning; see EndsInReasoning.
  bool in_reasoning = false;
  // False: markup of calls within reasoning is reasoning. A grammar of calls
  // begins behind the reasoning.
  bool calls_in_reasoning = true;
  // True: an answer is calls or content. Content that has begun has no calls,
  // whatever it spells.
  bool calls_or_content = false;
  // The prompt ends within content, from the next space on: the output goes on
  // with it, and has no reasoning.
  bool in_content = false;
};

// How an output ended.
enum class OutputEnd {
  kStopped,   // the model ended its turn: open parts are closed
  kCutShort,  // by length, a stop string, a cancel: an open call stays open,
              // with arguments that are no whole JSON
};

// Splits one output into content, reasoning and tool calls, as it comes. One
// thread. Total: no input is an error; text that is no call is content (or
// reasoning, within it). The joined events do not depend on the pieces of text.
// Held back text is bounded (kMaxHeldBytes).
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  OutputParser(const OutputParser&) = delete;
  OutputParser& operator=(const OutputParser&) = delete;

  // `text` is the detokenizer's text for `token`, empty for an incomplete
  // character; tokens of KeptTokens come as spelled. Only harmony reads
  // `token`: for other formats any id will do.
  virtual OutputEvents Feed(TokenId token, std::string_view text) = 0;

  // Returns the rest; Feed must not follow. The token that ended the turn may
  // be fed or not.
  virtual OutputEvents Finish(OutputEnd end) = 0;

 protected:
  OutputParser() = default;
};

// Bytes held back of one value that is no string, of a header, and so on.
inline constexpr size_t kMaxHeldBytes = 64 << 10;

// Returns a parser of one output. `vocabulary` outlives it.
std::unique_ptr<OutputParser> NewOutputParser(const OutputFormat& format,
                                              const Vocabulary& vocabulary,
                                              const OutputRequest& request);
// Returns parsers of the `count` outputs of one request, which share its
// schemas.
std::vector<std::unique_ptr<OutputParser>> NewOutputParsers(
    const OutputFormat& format, const Vocabulary& vocabulary,
    const OutputRequest& request, size_t count);

// Returns the special tokens of the format's markup, ascending: a detokenizer
// must show them even if it skips special tokens.
std::vector<TokenId> KeptTokens(const OutputFormat& format,
                                const Vocabulary& vocabulary);

// Returns whether a prompt ends within reasoning: with its opening tag and
// perhaps white space. `prompt_end`: the text of its last 16 tokens or more,
// with special ones shown.
bool EndsInReasoning(const OutputFormat& format, std::string_view prompt_end);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_OUTPUT_PARSER_H_
