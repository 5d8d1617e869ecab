#include "common/tools/chat/edit_buffer.h"

#include <algorithm>
#include <utility>

#include "common/text/utf8.h"
#include "common/tools/chat/terminal_text.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kBlock = "\"\"\"";
constexpr int kTabColumns = 4;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// Returns the first character of valid UTF-8.
Utf8Unit FirstOf(std::string_view text) { return NextUtf8(text); }

}  // namespace

void EditBuffer::Insert(std::string_view text) {
  const std::string plain = WithoutControls(text);
  text_.insert(cursor_, plain);
  cursor_ += plain.size();
}

void EditBuffer::Set(std::string text) {
  text_ = WithoutControls(text);
  cursor_ = text_.size();
}

// A mark that takes no column, as an accent, goes with the character before it.
size_t EditBuffer::Behind(size_t at) const {
  if (at < text_.size()) {
    at += FirstOf(std::string_view(text_).substr(at)).size;
  }
  while (at < text_.size()) {
    const Utf8Unit unit = FirstOf(std::string_view(text_).substr(at));
    if (unit.value < 0x80 || DisplayWidth(unit.value) > 0) break;
    at += unit.size;
  }
  return at;
}

size_t EditBuffer::Before(size_t at) const {
  while (at > 0) {
    do --at;
    while (at > 0 && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80);
    const Utf8Unit unit = FirstOf(std::string_view(text_).substr(at));
    if (unit.value < 0x80 || DisplayWidth(unit.value) > 0) break;
  }
  return at;
}

size_t EditBuffer::BeginOfLine(size_t at) const {
  if (at == 0) return 0;
  const size_t end = text_.rfind('\n', at - 1);
  return end == std::string::npos ? 0 : end + 1;
}

size_t EditBuffer::EndOfLine(size_t at) const {
  return std::min(text_.find('\n', at), text_.size());
}

void EditBuffer::WordLeft() {
  while (cursor_ > 0 && IsBlank(text_[cursor_ - 1])) Left();
  while (cursor_ > 0 && !IsBlank(text_[cursor_ - 1])) Left();
}

void EditBuffer::WordRight() {
  while (cursor_ < text_.size() && IsBlank(text_[cursor_])) Right();
  while (cursor_ < text_.size() && !IsBlank(text_[cursor_])) Right();
}

void EditBuffer::MoveTo(size_t line_begin, int columns) {
  cursor_ = line_begin;
  const size_t end = EndOfLine(line_begin);
  while (cursor_ < end && DisplayWidth(std::string_view(text_).substr(
                              line_begin, cursor_ - line_begin)) < columns) {
    Right();
  }
}

bool EditBuffer::Up() {
  const size_t begin = BeginOfLine(cursor_);
  if (begin == 0) return false;
  MoveTo(BeginOfLine(begin - 1),
         DisplayWidth(std::string_view(text_).substr(begin, cursor_ - begin)));
  return true;
}

bool EditBuffer::Down() {
  const size_t begin = BeginOfLine(cursor_);
  const size_t end = EndOfLine(cursor_);
  if (end == text_.size()) return false;
  MoveTo(end + 1,
         DisplayWidth(std::string_view(text_).substr(begin, cursor_ - begin)));
  return true;
}

void EditBuffer::Erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void EditBuffer::Keep(size_t begin, size_t end) {
  erased_ = text_.substr(begin, end - begin);
  Erase(begin, end);
}

void EditBuffer::EraseWord() {
  const size_t end = cursor_;
  WordLeft();
  Keep(cursor_, end);
}

void EditBuffer::EraseToLineBegin() { Keep(BeginOfLine(cursor_), cursor_); }

void EditBuffer::EraseToLineEnd() {
  const size_t end = EndOfLine(cursor_);
  // At a line's end the next line comes to it.
  Keep(cursor_, end == cursor_ ? std::min(end + 1, text_.size()) : end);
}

bool IsWholePrompt(std::string_view text) {
  if (text.ends_with('\\')) return false;
  if (!text.starts_with(kBlock)) return true;
  size_t marks = 0;
  for (size_t at = 0; (at = text.find(kBlock, at)) != std::string_view::npos;
       at += kBlock.size()) {
    ++marks;
  }
  return marks % 2 == 0;
}

std::string PromptOf(std::string_view text) {
  const size_t both = 2 * kBlock.size();
  if (text.size() < both || !text.starts_with(kBlock) ||
      text.find(kBlock, kBlock.size()) != text.size() - kBlock.size()) {
    return std::string(text);
  }
  text = text.substr(kBlock.size(), text.size() - both);
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text);
}

Layout LayOut(std::string_view prompt, const EditBuffer& buffer, int columns,
              size_t max_rows) {
  Layout layout;
  layout.rows.emplace_back(prompt);
  const int indent = DisplayWidth(prompt);
  int column = indent;
  const auto begin_row = [&](const std::string& text, int width) {
    layout.rows.push_back(text);
    column = width;
  };
  const std::string_view text = buffer.text();
  for (size_t at = 0;;) {
    if (at == buffer.cursor()) {
      if (column >= columns) begin_row("", 0);
      layout.cursor_row = layout.rows.size() - 1;
      layout.cursor_column = column;
    }
    if (at == text.size()) break;
    const Utf8Unit unit = FirstOf(text.substr(at));
    if (text[at] == '\n') {
      begin_row(std::string(static_cast<size_t>(indent), ' '), indent);
    } else {
      const bool is_tab = text[at] == '\t';
      const int width = is_tab ? kTabColumns : DisplayWidth(unit.value);
      if (column + width > columns) begin_row("", 0);
      layout.rows.back() += is_tab ? std::string(kTabColumns, ' ')
                                   : std::string(text.substr(at, unit.size));
      column += width;
    }
    at += unit.size;
  }
  if (layout.rows.size() > max_rows) {
    const size_t first = std::min(
        layout.cursor_row < max_rows ? 0 : layout.cursor_row + 1 - max_rows,
        layout.rows.size() - max_rows);
    layout.rows = {
        layout.rows.begin() + static_cast<ptrdiff_t>(first),
        layout.rows.begin() + static_cast<ptrdiff_t>(first + max_rows)};
    layout.cursor_row -= first;
  }
  return layout;
}

}  // namespace sluice::chat
