#ifndef SLUICE_COMMON_DIALECTS_RESPONSES_CUSTOM_INPUT_H_
#define SLUICE_COMMON_DIALECTS_RESPONSES_CUSTOM_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::responses {

// Takes a custom tool's input out of the arguments of its call, a text of JSON
// {"input": TEXT} that grows: what a client is told of it piece by piece does
// not depend on the pieces. Arguments that do not begin with such a member are
// the input as they are; an input that was cut ends where it was cut.
class CustomInput {
 public:
  // Reads the rest of `arguments`, the text so far, and returns what it adds to
  // the input; what the text before its last `bytes` adds is left out.
  std::string Next(std::string_view arguments, size_t bytes);

 private:
  // Before the member's name, in the text, behind the text; in arguments
  // without the member.
  enum class Place { kBefore, kWithin, kBehind, kRaw };

  // Moves to the input's first character, if `arguments` have it.
  void FindText(std::string_view arguments);
  // Reads a character of the text, if it is whole; else returns false.
  bool ReadChar(std::string_view arguments, std::string& out);

  Place place_ = Place::kBefore;
  size_t at_ = 0;
};

}  // namespace sluice::responses

#endif  // SLUICE_COMMON_DIALECTS_RESPONSES_CUSTOM_INPUT_H_
