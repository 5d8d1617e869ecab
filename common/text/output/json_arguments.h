#ifndef SLUICE_COMMON_TEXT_OUTPUT_JSON_ARGUMENTS_H_
#define SLUICE_COMMON_TEXT_OUTPUT_JSON_ARGUMENTS_H_

#include <string>
#include <string_view>

#include "common/text/output/call_reader.h"
#include "common/text/output/event_writer.h"
#include "common/text/output/json_scan.h"

namespace sluice {

// Writes the arguments of a call that are one JSON value, as they come, with
// control characters in strings escaped. Value type.
class JsonArguments {
 public:
  // Begins at the value's first byte.
  void Begin(const PendingText& input);
  // Reads on, and ends the call with the value. False: needs more text, or the
  // output ended.
  bool Read(PendingText& input, EventWriter& out);

  // Returns arguments as a JSON object: the object in a string, {} for null.
  static std::string AsObject(std::string_view text);

 private:
  void Write(std::string_view piece, bool whole, EventWriter& out);

  JsonScan scan_;
  bool passes_on_ = false;  // the arguments are shown as they come
  std::string held_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_JSON_ARGUMENTS_H_
