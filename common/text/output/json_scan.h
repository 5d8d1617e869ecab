#ifndef SLUICE_COMMON_TEXT_OUTPUT_JSON_SCAN_H_
#define SLUICE_COMMON_TEXT_OUTPUT_JSON_SCAN_H_

#include <string>

namespace sluice {

// Finds where one JSON value ends, byte by byte. Knows strings and nesting,
// no more: what stands between is not checked. Value type.
class JsonScan {
 public:
  enum class Step {
    kWithin,  // the byte belongs to the value, which goes on
    kLast,    // the byte is the value's last
    kBehind,  // the value ended before the byte
  };
  Step Next(char c);

  bool began() const { return began_; }
  bool in_string() const { return in_string_; }
  // What closes the value that is open now: a quote, brackets.
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
