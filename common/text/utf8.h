#ifndef SLUICE_COMMON_TEXT_UTF8_H_
#define SLUICE_COMMON_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// What stands at the start of some bytes.
struct Utf8Unit {
  enum class Kind { kCharacter, kInvalid, kIncomplete };
  Kind kind = Kind::kIncomplete;
  size_t size = 0;     // of the character, or of what one U+FFFD replaces
  char32_t value = 0;  // of a character
};

// The first unit of `bytes`, which is not empty. An invalid sequence is cut
// as the Unicode standard recommends (maximal subparts). kIncomplete: more
// bytes could make it a character.
Utf8Unit NextUtf8(std::string_view bytes);

// Offset of the first byte that is not part of valid UTF-8; npos if none.
size_t FirstInvalidUtf8(std::string_view bytes);

// Appends the UTF-8 of `value`, a Unicode scalar value.
void AppendUtf8(char32_t value, std::string& out);

// `bytes` with U+FFFD for what is not UTF-8.
std::string Utf8Lossy(std::string_view bytes);

// Turns a stream of bytes into whole characters. Value type, threadless.
class Utf8Stream {
 public:
  // The characters that `bytes` complete; U+FFFD for what is invalid.
  std::string Push(std::string_view bytes);
  // What was held back, as U+FFFD; empty if nothing was.
  std::string Finish();
  bool holds() const { return !held_.empty(); }

 private:
  std::string held_;  // at most three bytes
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_UTF8_H_
