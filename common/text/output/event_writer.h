#ifndef SLUICE_COMMON_TEXT_OUTPUT_EVENT_WRITER_H_
#define SLUICE_COMMON_TEXT_OUTPUT_EVENT_WRITER_H_

#include <string>
#include <string_view>

#include "common/text/output/output_parser.h"

namespace sluice {

bool IsBlank(char c);  // space, tab, line feed, carriage return
bool IsBlank(std::string_view text);
std::string_view TrimBlanks(std::string_view text);

// Appends `text` as the inside of a JSON string: quotes, backslashes and
// control characters escaped, all else as it is.
void AppendJsonEscaped(std::string_view text, std::string& out);

// Collects the events of an output. Value type, threadless.
class EventWriter {
 public:
  void Content(std::string_view text) {
    Text(OutputEvent::Kind::kContent, text);
  }
  void Reasoning(std::string_view text) {
    Text(OutputEvent::Kind::kReasoning, text);
  }
  void BeginCall(std::string_view name);
  void Arguments(std::string_view text) {
    Text(OutputEvent::Kind::kArguments, text);
  }
  void EndCall();

  // How many calls began.
  int calls() const { return calls_; }
  // The events since the last time.
  OutputEvents Take();

 private:
  void Text(OutputEvent::Kind kind, std::string_view text);

  OutputEvents events_;
  int calls_ = 0;
};

// A text whose white space at both ends is not shown: what may be at the end
// is held back until more comes, up to a bound. Value type.
class TrimmedText {
 public:
  explicit TrimmedText(bool trim_start) : trim_start_(trim_start) {}
  // What of the text so far may be shown now.
  std::string Push(std::string_view text);
  // The white space that was held back.
  std::string TakeHeld();
  bool began() const { return began_; }

 private:
  const bool trim_start_;
  bool began_ = false;  // something other than white space came
  std::string held_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_EVENT_WRITER_H_
