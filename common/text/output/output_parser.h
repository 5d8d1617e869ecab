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

// How a model writes tool calls, and how it sets reasoning apart.
enum class ToolFormat {
  kNone,
  kGlm,        // <tool_call>NAME <arg_key>K</arg_key><arg_value>V</arg_value>
  kQwenCoder,  // <tool_call><function=NAME><parameter=K>V</parameter>
  kHermes,     // <tool_call>{"name": .., "arguments": ..}</tool_call>
  kLlamaJson,  // {"name": .., "parameters": ..}, perhaps after <|python_tag|>
  kHarmony,    // messages to functions.NAME
};
enum class ReasoningFormat {
  kNone,
  kThink,    // <think>..</think>
  kHarmony,  // the channel `analysis`
};

struct OutputFormat {
  ToolFormat tools = ToolFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool operator==(const OutputFormat&) const = default;
};

// "glm", "qwen3-coder", "hermes", "llama3-json", "harmony", "none"; "think",
// "harmony", "none".
std::string_view ToolFormatName(ToolFormat format);
std::string_view ReasoningFormatName(ReasoningFormat format);

// The format of a model's output by what its chat template shows it and by
// its special tokens, never by its name. `tool_format`, `reasoning_format`: a
// name as above, or "auto". INVALID_ARGUMENT for an unknown name, and for
// harmony with anything else or without its tokens in the vocabulary.
StatusOr<OutputFormat> ChooseOutputFormat(
    std::string_view chat_template, const Vocabulary& vocabulary,
    std::string_view tool_format = "auto",
    std::string_view reasoning_format = "auto");

// One step of what a client is shown, in the order of the model's output.
// Calls do not overlap: kCallBegin, kArguments.., kCallEnd.
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
  std::string text;  // never empty but for kCallEnd
  bool operator==(const OutputEvent&) const = default;
};
using OutputEvents = std::vector<OutputEvent>;

// A function that the request offers.
struct OutputTool {
  std::string name;
  std::string parameters;  // its JSON schema as text; empty: not known
};

// What the parser must know of a request.
struct OutputRequest {
  // Empty (also for tool_choice "none"): no call is looked for, markup of
  // calls is content.
  std::vector<OutputTool> tools;
  // The prompt ended within reasoning; see EndsInReasoning.
  bool in_reasoning = false;
};

// How an output ended.
enum class OutputEnd {
  kStopped,   // the model ended its turn: what is open is closed
  kCutShort,  // by length, a stop string, a cancel: an open call stays open,
              // with arguments that are no whole JSON
};

// One output told apart into content, reasoning and tool calls, as it comes.
// One thread. Total: no input raises, what cannot be read as a call is
// content (or reasoning, within it). Whatever pieces the text comes in, the
// joined events are the same. What it holds back is bounded (kMaxHeldBytes),
// however long the output.
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  OutputParser(const OutputParser&) = delete;
  OutputParser& operator=(const OutputParser&) = delete;

  // `text`: what the detokenizer gave for `token`, which may be empty while a
  // character is incomplete. The tokens of KeptTokens come as they are
  // spelled. Only harmony looks at `token`: where a format has its markup in
  // plain text, any id will do.
  virtual OutputEvents Feed(TokenId token, std::string_view text) = 0;

  // The rest; nothing may be fed after it. The token that ended the turn need
  // not be fed, and may be.
  virtual OutputEvents Finish(OutputEnd end) = 0;

 protected:
  OutputParser() = default;
};

// Of one value that is not a string, of a header, and so on.
inline constexpr size_t kMaxHeldBytes = 64 << 10;

// A parser for one output. `vocabulary` outlives it.
std::unique_ptr<OutputParser> NewOutputParser(const OutputFormat& format,
                                              const Vocabulary& vocabulary,
                                              const OutputRequest& request);
// Parsers for the `count` outputs of one request: its schemas are read once.
std::vector<std::unique_ptr<OutputParser>> NewOutputParsers(
    const OutputFormat& format, const Vocabulary& vocabulary,
    const OutputRequest& request, size_t count);

// Special tokens that a detokenizer must show although it skips special ones,
// ascending: the format's markup, as far as it is special here.
std::vector<TokenId> KeptTokens(const OutputFormat& format,
                                const Vocabulary& vocabulary);

// Whether a prompt leaves the model within reasoning: it ends with `<think>`
// and perhaps white space. `prompt_end`: the text of its last tokens, special
// ones shown; 16 tokens are enough.
bool EndsInReasoning(const OutputFormat& format, std::string_view prompt_end);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_OUTPUT_PARSER_H_
