#ifndef SLUICE_COMMON_TOOLS_CHAT_EDIT_BUFFER_H_
#define SLUICE_COMMON_TOOLS_CHAT_EDIT_BUFFER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

// A text of lines and the place in it where a person types. The cursor is
// between characters. Value type.
class EditBuffer {
 public:
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // a byte's offset

  // Inserts `text` at the cursor, without control characters.
  void Insert(std::string_view text);
  void NewLine() { Insert("\n"); }
  // Sets the text, and the cursor to its end.
  void Set(std::string text);

  void Left() { cursor_ = Before(cursor_); }
  void Right() { cursor_ = Behind(cursor_); }
  void WordLeft();
  void WordRight();
  void LineBegin() { cursor_ = BeginOfLine(cursor_); }
  void LineEnd() { cursor_ = EndOfLine(cursor_); }
  // Moves to the line above or below; false where there is none.
  bool Up();
  bool Down();

  void EraseBefore() { Erase(Before(cursor_), cursor_); }  // one character
  void EraseBehind() { Erase(cursor_, Behind(cursor_)); }
  void EraseWord();
  void EraseToLineBegin();
  void EraseToLineEnd();
  // Inserts what was erased last but by characters.
  void Yank() { Insert(erased_); }

 private:
  size_t Before(size_t at) const;
  size_t Behind(size_t at) const;
  size_t BeginOfLine(size_t at) const;
  size_t EndOfLine(size_t at) const;
  void Erase(size_t begin, size_t end);
  void Keep(size_t begin, size_t end);
  void MoveTo(size_t line_begin, int columns);

  std::string text_;
  size_t cursor_ = 0;
  std::string erased_;
};

// Returns whether Enter ends `text`. A backslash at its end, or """ at its
// beginning that no """ answers, asks for a further line.
bool IsWholePrompt(std::string_view text);

// Returns the prompt of a whole text: without """ around it.
std::string PromptOf(std::string_view text);

// What a terminal shows of a buffer.
struct Layout {
  std::vector<std::string> rows;
  size_t cursor_row = 0;
  int cursor_column = 0;
};

// Cuts `prompt` and the text, whose further lines are indented as far, into
// rows of `columns`, and leaves out those farther from the cursor than
// `max_rows` allows.
Layout LayOut(std::string_view prompt, const EditBuffer& buffer, int columns,
              size_t max_rows);

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_EDIT_BUFFER_H_
