#ifndef SLUICE_COMMON_TEXT_OUTPUT_ARGUMENTS_WRITER_H_
#define SLUICE_COMMON_TEXT_OUTPUT_ARGUMENTS_WRITER_H_

#include <set>
#include <string>
#include <string_view>

#include "common/text/output/event_writer.h"
#include "common/text/output/json_scan.h"
#include "common/text/output/parameter_types.h"

namespace sluice {

// How a value is written.
enum class ValueForm {
  kBare,      // by its schema
  kText,      // a string, whatever its schema says
  kPython,    // a literal of Python without quotes
  kElements,  // by its schema, with parts in elements
};

// Writes the JSON arguments of calls whose format has no JSON: pairs of a name
// and a text. Strings are written as they come; other values are held back
// until they are whole, and are strings beyond kMaxHeldBytes. Of a name that
// comes twice in a call the first value stands, since a stream has it already.
// `tools` outlives it.
class ArgumentsWriter {
 public:
  explicit ArgumentsWriter(const ToolTypes& tools) : tools_(tools) {}

  void BeginCall(std::string_view name, EventWriter& out);
  void BeginValue(std::string_view parameter, EventWriter& out,
                  ValueForm form = ValueForm::kBare);
  // Begins a value that is not written.
  void BeginDropped();
  void Value(std::string_view text, EventWriter& out);
  void EndValue(EventWriter& out);
  void EndCall(EventWriter& out);
  // The output ends within the call: drops the text held back.
  void Abandon() { held_.clear(); }
  // True within a string of a value that can only be JSON: a tag there is text.
  bool in_json_string() const { return is_json_ && scan_.in_string(); }

 private:
  void Scan(std::string_view text);
  std::string HeldAsJson() const;

  const ToolTypes& tools_;
  std::string name_;
  std::set<std::string> names_;  // the call's parameters
  bool drops_ =
      false;  // the value is not written: its name has a value already
  const ParameterType* type_ = nullptr;  // of `tools_`; of the value
  std::string parameter_;                // the value's name
  ValueForm form_ = ValueForm::kBare;    // of the value
  bool streams_ = false;                 // the value is a string
  bool is_json_ = false;                 // the value may not be a bare string
  JsonScan scan_;                        // of such a value
  std::string held_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_ARGUMENTS_WRITER_H_
