#ifndef SLUICE_COMMON_TOOLS_CHAT_INLINE_MARKDOWN_H_
#define SLUICE_COMMON_TOOLS_CHAT_INLINE_MARKDOWN_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::chat {

// How a terminal shows a text.
struct Style {
  bool bold = false;
  bool dim = false;
  bool italic = false;
  bool underline = false;
  bool strike = false;
  bool code = false;
  bool operator==(const Style&) const = default;
};
inline constexpr Style kDim = {.dim = true};

// Collects styled text, with the escape sequences (SGR alone) between.
class StyledText {
 public:
  void Put(const Style& style, std::string_view text);
  // Returns the text, which ends in the terminal's own style.
  std::string Take();
  int columns() const { return columns_; }  // of all that was put

 private:
  std::string text_;
  Style style_;
  int columns_ = 0;
};

// A span (bold, code, a link, ..) is at most so many bytes: a mark that no
// other mark answers within them is text, and text behind it is not held for
// longer.
inline constexpr size_t kMaxSpanBytes = 1024;

// Part of a line of Markdown.
struct InlinePart {
  std::string_view text;  // without control characters
  Style style;            // around it
  char before = ' ';      // the byte before it in the line
  bool is_end = true;     // the line has no more bytes
};

// Puts `part` without its marks, in styles. Returns the bytes that are put: all
// at the line's end, else those that no further byte gives another style.
size_t PutInline(const InlinePart& part, StyledText& out);

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_INLINE_MARKDOWN_H_
