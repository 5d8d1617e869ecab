#ifndef SLUICE_COMMON_TEXT_OUTPUT_JSON_SCAN_H_
#define SLUICE_COMMON_TEXT_OUTPUT_JSON_SCAN_H_

#include <string>

namespace sluice {

// Finds the end of one JSON value, byte by byte. Knows strings and nesting
// alone; the rest is unchecked. Value type.
class JsonScan {
 public:
  enum class Step {
    kWithin,  // the value goes on
    kLast,    // the value's last byte
    kBehind,  // behind the value
  };
  Step Next(char c);

  bool began() const { return began_; }
  bool in_string() const { return in_string_; }
  // Returns what closes the open value: a quote, brackets.
  std::string Closers() const;

 private:
  Step NextInString(char c);

  bool began_ = false;
  bool scalar_ = false;  // a number, true, false, null
  bool in_string_ = false;
  bool escaped_ = false;
  size_t depth_ = 0;
  std::string closers_;  // of the first levels
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_JSON_SCAN_H_
