#ifndef SLUICE_COMMON_TEXT_OUTPUT_ARGUMENTS_WRITER_H_
#define SLUICE_COMMON_TEXT_OUTPUT_ARGUMENTS_WRITER_H_

#include <string>
#include <string_view>

#include "common/text/output/event_writer.h"
#include "common/text/output/parameter_types.h"

namespace sluice {

// Writes the JSON arguments of calls whose format has no JSON: pairs of a
// name and a text. Strings are passed on as they come; a value that may be
// something else is held back until it is whole, and is a string if it is
// longer than kMaxHeldBytes. `tools` outlives it.
class ArgumentsWriter {
 public:
  explicit ArgumentsWriter(const ToolTypes& tools) : tools_(tools) {}

  void BeginCall(std::string_view name, EventWriter& out);
  void BeginValue(std::string_view parameter, EventWriter& out);
  void Value(std::string_view text, EventWriter& out);
  void EndValue(EventWriter& out);
  void EndCall(EventWriter& out);
  // The output ends within the call: what is held back is not shown.
  void Abandon() { held_.clear(); }

 private:
  const ToolTypes& tools_;
  std::string name_;
  bool first_ = true;  // no parameter yet
  unsigned types_ = kAnyType;
  bool streams_ = false;  // the value is a string for sure
  std::string held_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_ARGUMENTS_WRITER_H_
