#ifndef SLUICE_COMMON_TOOLS_CHAT_MARKDOWN_H_
#define SLUICE_COMMON_TOOLS_CHAT_MARKDOWN_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/text/utf8.h"
#include "common/tools/chat/inline_markdown.h"

namespace sluice::chat {

// Shows Markdown on a terminal while it comes: headings, lists, quotes, rules,
// code blocks, tables, and the styles within a line. What Push returns has no
// escape sequences but SGR's, ends in the terminal's own style, and is the same
// for any pieces of the text. A line is shown as far as no further byte changes
// its look; a table once it has ended. Threadless.
class Markdown {
 public:
  // A table that is wider than `columns` becomes a list of its cells.
  explicit Markdown(int columns) : columns_(columns) {}

  // Returns what `text` completes.
  std::string Push(std::string_view text);
  // Returns what is held back, and begins a new text.
  std::string Finish();

 private:
  std::string ShowPart();
  std::string EndLine();
  std::string BeginLine();
  std::string RestOfLine(bool is_end);
  std::string EndTable();

  const int columns_;
  Utf8Stream characters_;
  std::string line_;       // the current line's bytes that are not shown
  bool is_begun_ = false;  // the line's first bytes are shown
  char before_ = ' ';      // the last byte that was shown of it
  Style style_;            // of the line: a heading's
  std::string fence_;      // of the open code block; empty: none is open
  std::vector<std::string> table_;  // lines of a table that has not ended
};

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_MARKDOWN_H_
