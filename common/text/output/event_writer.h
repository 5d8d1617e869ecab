#ifndef SLUICE_COMMON_TEXT_OUTPUT_EVENT_WRITER_H_
#define SLUICE_COMMON_TEXT_OUTPUT_EVENT_WRITER_H_

#include <string>
#include <string_view>

#include "common/text/output/output_parser.h"

namespace sluice {

bool IsBlank(char c);  // space, tab, line feed, carriage return
bool IsBlank(std::string_view text);
std::string_view TrimBlanks(std::string_view text);

// Appends `text` as the inside of a JSON string, with quotes, backslashes and
// control characters escaped.
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

  // Returns the number of calls begun.
  int calls() const { return calls_; }
  // Returns the events since the last Take.
  OutputEvents Take();

 private:
  void Text(OutputEvent::Kind kind, std::string_view text);

  OutputEvents events_;
  int calls_ = 0;
};

// A text without white space at both ends: possible white space at the end is
// held back, up to a bound. Value type.
class TrimmedText {
 public:
  explicit TrimmedText(bool trim_start) : trim_start_(trim_start) {}
  // Returns the text that may be shown.
  std::string Push(std::string_view text);
  // Returns the white space held back.
  std::string TakeHeld();
  bool began() const { return began_; }

 private:
  const bool trim_start_;
  bool began_ = false;  // white space is no beginning
  std::string held_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_EVENT_WRITER_H_
