#ifndef SLUICE_COMMON_TEXT_UTF8_H_
#define SLUICE_COMMON_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// The first character of some bytes, or invalid bytes.
struct Utf8Unit {
  enum class Kind { kCharacter, kInvalid, kIncomplete };
  Kind kind = Kind::kIncomplete;
  size_t size = 0;     // of the character, or of the bytes of one U+FFFD
  char32_t value = 0;  // of a character
};

// Returns the first unit of `bytes`, which is not empty. Cuts an invalid
// sequence as the Unicode standard recommends (maximal subparts). kIncomplete:
// more bytes could complete a character.
Utf8Unit NextUtf8(std::string_view bytes);

// Returns the offset of the first byte of invalid UTF-8; npos without one.
size_t FirstInvalidUtf8(std::string_view bytes);

// Appends the UTF-8 of `value`, a Unicode scalar value.
void AppendUtf8(char32_t value, std::string& out);

// Returns `bytes` with U+FFFD for invalid UTF-8.
std::string Utf8Lossy(std::string_view bytes);

// Turns a stream of bytes into whole characters. Value type, threadless.
class Utf8Stream {
 public:
  // Returns the characters that `bytes` complete; U+FFFD for invalid bytes.
  std::string Push(std::string_view bytes);
  // Returns the bytes held back, as U+FFFD; empty without any.
  std::string Finish();
  bool holds() const { return !held_.empty(); }
  // Returns whether `bytes` leave the character held back incomplete: they
  // begin another character.
  bool BreaksOff(std::string_view bytes) const;

 private:
  std::string held_;  // at most three bytes
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_UTF8_H_
