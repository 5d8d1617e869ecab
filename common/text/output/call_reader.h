#ifndef SLUICE_COMMON_TEXT_OUTPUT_CALL_READER_H_
#define SLUICE_COMMON_TEXT_OUTPUT_CALL_READER_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "common/text/output/event_writer.h"
#include "common/text/output/markup_tags.h"
#include "common/text/output/parameter_types.h"

namespace sluice {

class ArgumentsWriter;

// Text that is not read yet. Value type.
class PendingText {
 public:
  void Append(std::string_view text);
  // Ends the text, with how the output ended.
  void End(OutputEnd end);

  std::string_view text() const {
    return std::string_view(data_).substr(begin_);
  }
  void Consume(size_t size) { begin_ += size; }
  void ConsumeBlanks();

  bool ended() const { return ended_; }
  bool stopped() const { return ended_ && end_ == OutputEnd::kStopped; }
  bool cut_short() const { return ended_ && end_ == OutputEnd::kCutShort; }

  // Whether `tag` stands at byte `at`. kMaybe: the text ends within the tag.
  enum class Match { kNo, kMaybe, kYes };
  Match Find(std::string_view tag, size_t at = 0) const;
  // Finds any of `tags` at byte `at`.
  Match FindAny(std::initializer_list<std::string_view> tags,
                size_t at = 0) const;
  // Finds any of `tags` behind white space at `at`, up to a bound. If the
  // output ended within that space or a tag, the tag counts as found: models
  // leave out closing tags at the end.
  Match FindNext(std::initializer_list<std::string_view> tags, size_t at) const;
  // Returns whether the output ended within `tag` at byte `at`.
  bool EndsWithin(std::string_view tag, size_t at) const;
  // Consumes white space and then `tag`, if it is there, or the output ended
  // within it. kMaybe: needs more text.
  Match ConsumeTag(std::string_view tag);

 private:
  std::string data_;
  size_t begin_ = 0;
  bool ended_ = false;
  OutputEnd end_ = OutputEnd::kStopped;
};

// Reads tool calls in one format behind their opening mark. The result depends
// on the text alone, never on its pieces.
class CallReader {
 public:
  enum class Result {
    kMore,    // needs more text
    kNoCall,  // no call: nothing is consumed or written
    kDone,    // the call is written; the text behind it remains
  };

  virtual ~CallReader() = default;
  // Begins a call. `known_only`: it must name a function of the request.
  virtual void Begin(bool known_only) = 0;
  // Reads on. Once `input` has ended, returns kNoCall or kDone; if cut short,
  // writes the call so far and leaves it open.
  virtual Result Read(PendingText& input, EventWriter& out) = 0;
};

// <tool_call>: NAME <arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
std::unique_ptr<CallReader> NewGlmCallReader(const ToolTypes& tools);
// <tool_call>: <function=NAME><parameter=K>V</parameter></function>, then
// </tool_call>, or the other tags of `markup`, which outlives the reader.
std::unique_ptr<CallReader> NewParameterCallReader(const ToolTypes& tools,
                                                   const CallMarkup& markup);
// {"name": .., "arguments": {..}}, or "parameters". `close_tag`: the tag behind
// it, or empty.
std::unique_ptr<CallReader> NewJsonCallReader(const ToolTypes& tools,
                                              std::string_view close_tag);
// The same in a list of `markup`, which outlives the reader: a bracket, and the
// beginning of a block, may stand before it.
std::unique_ptr<CallReader> NewListedJsonReader(const ToolTypes& tools,
                                                const CallMarkup& markup);
// A list of such objects, or of NAME(K=V, ..), and the closing tag.
std::unique_ptr<CallReader> NewListCallReader(const ToolTypes& tools,
                                              const CallMarkup& markup);
// NAME, a separator and JSON.
std::unique_ptr<CallReader> NewNamedCallReader(const ToolTypes& tools,
                                               const CallMarkup& markup);
// [NAME(K=V, ..), ..] with Python's literals.
std::unique_ptr<CallReader> NewPythonCallReader(const ToolTypes& tools,
                                                const CallMarkup& markup);
// call:NAME{K:V, ..}
std::unique_ptr<CallReader> NewGemmaCallReader(const ToolTypes& tools,
                                               const CallMarkup& markup);
// A tag of the name, an element for each parameter.
std::unique_ptr<CallReader> NewElementCallReader(const ToolTypes& tools,
                                                 const CallMarkup& markup);
// Behind <tool_call>: any of the three formats, since models mix them up.
std::unique_ptr<CallReader> NewTaggedCallReader(const ToolTypes& tools);
// Behind [TOOL_CALLS]: a list or a name, since models mix these up, too.
std::unique_ptr<CallReader> NewMistralCallReader(const ToolTypes& tools);

// Reads white space, `begin`, a name and `>`, and begins the call of that name.
// kNoCall: the text is another, or `known` (null: any name will do) has no tool
// of that name.
CallReader::Result ReadCallTag(std::string_view begin, const ToolTypes* known,
                               PendingText& input, ArgumentsWriter& arguments,
                               EventWriter& out);

// Returns the name in a tag, without quotes and what follows them.
std::string_view UnquotedName(std::string_view name);

// Returns whether `name` may be a function's: letters, digits and -_.:/ only.
bool IsCallName(std::string_view name);

// The longest opening of a call, tags and name.
inline constexpr size_t kMaxCallHead = 512;
// The longest name of a parameter; the rest is dropped.
inline constexpr size_t kMaxParameterName = 1024;

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_CALL_READER_H_
