#ifndef SLUICE_COMMON_TEXT_SPECIAL_MARKS_H_
#define SLUICE_COMMON_TEXT_SPECIAL_MARKS_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text/tokenizer.h"

namespace sluice {

// Finds spellings of special tokens. Immutable; any thread. Holds views into
// the tokenizer's vocabulary, which outlives it.
class SpecialSpellings {
 public:
  explicit SpecialSpellings(const Vocabulary& vocabulary);

  // Returns sizes and ids of the special tokens spelled at byte `at` of `text`,
  // longest first; `at` is within the text. Linear in the longest spelling.
  std::vector<std::pair<size_t, TokenId>> At(std::string_view text,
                                             size_t at) const;
  // Returns whether `text`, the text of JSON, may spell a special token:
  // always, if JSON escapes a character of some spelling.
  bool MayBeInJson(std::string_view text) const;
  std::string_view Text(TokenId id) const { return vocabulary_.Name(id); }

 private:
  const Vocabulary& vocabulary_;
  std::vector<std::pair<std::string_view, TokenId>> sorted_;
  std::array<bool, 256> starts_{};  // first bytes of spellings
  bool escaped_in_json_ = false;    // JSON escapes a character of some spelling
};

// Marking a character moves it into a private-use plane, one to one, so that
// lengths, trimming and comparisons in a template stay the same. `plane` is the
// plane's first code point.
inline constexpr char32_t kMarkPlanes[] = {0x100000, 0xF0000};

// Returns the first plane without a character of either text, or nullopt.
std::optional<char32_t> FreeMarkPlane(std::string_view text,
                                      std::string_view other);

// Returns `text` with every spelling of a special token marked.
std::string MarkSpecials(std::string_view text, const SpecialSpellings& finder,
                         char32_t plane);

struct Unmarked {
  std::string text;
  std::vector<bool> marks;  // by byte of `text`: it was marked
};
// Returns `marked`, UTF-8 text, without its marks. nullopt for other text.
std::optional<Unmarked> TakeMarksOff(std::string_view marked, char32_t plane);

// Returns `text` with every character marked, except those that templates treat
// by kind: white space, quotes, backslashes, controls.
std::string MarkAll(std::string_view text, char32_t plane);
// Returns whether MarkAll marks every character of `text`.
bool AllMarkable(std::string_view text);

// Returns which bytes of `plain` are marked in `marked`. nullopt if the two
// differ in more than marks.
std::optional<std::vector<bool>> MarkedBytes(std::string_view plain,
                                             std::string_view marked,
                                             char32_t plane);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_SPECIAL_MARKS_H_
