#include "common/tools/chat/markdown.h"

#include <algorithm>
#include <utility>

#include "common/tools/chat/terminal_text.h"

namespace sluice::chat {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr Style kBold = {.bold = true};
constexpr Style kCode = {.code = true};
// What a line's form is made of; a line of these alone is not yet told.
constexpr std::string_view kMarks = " \t#*+->_=.)0123456789";
constexpr size_t kMaxMarks = 64;
constexpr int kRuleColumns = 40;

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == kNone) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::string Styled(const Style& style, std::string_view text) {
  StyledText out;
  out.Put(style, text);
  return out.Take();
}

// Returns the run of backticks or tildes that `line` begins with, if it opens a
// code block.
std::string_view FenceOf(std::string_view line) {
  if (line.size() >= kMaxSpanBytes) return {};
  line = Trimmed(line);
  if (line.empty() || (line[0] != '`' && line[0] != '~')) return {};
  const size_t run = std::min(line.find_first_not_of(line[0]), line.size());
  const bool is_code = line[0] == '`' && line.find('`', run) != kNone;
  return run < 3 || is_code ? std::string_view() : line.substr(0, run);
}

// Returns whether `line` has nothing but marks of the block's fence.
bool MayClose(std::string_view line, const std::string& fence) {
  return line.size() < kMaxMarks &&
         Trimmed(line).find_first_not_of(fence[0]) == kNone;
}
bool Closes(std::string_view line, const std::string& fence) {
  return MayClose(line, fence) && Trimmed(line).size() >= fence.size();
}

bool IsRule(std::string_view line) {
  if (line.size() >= kMaxMarks) return false;
  line = Trimmed(line);
  if (line.empty() || std::string_view("-*_").find(line[0]) == kNone) {
    return false;
  }
  return std::count(line.begin(), line.end(), line[0]) >= 3 &&
         line.find_first_not_of(std::string{line[0], ' ', '\t'}) == kNone;
}

bool IsTableLine(std::string_view line) {
  return Trimmed(line).starts_with('|');
}

// Returns whether a line is text whatever its marks are.
bool HasTooManyMarks(std::string_view line) {
  return line.size() >= kMaxMarks &&
         line.substr(0, kMaxMarks).find_first_not_of(kMarks) == kNone;
}

// Returns whether further bytes may give another form to `line`, the beginning
// of a line.
bool IsOpen(std::string_view line) {
  if (HasTooManyMarks(line)) return false;
  const std::string_view text = Trimmed(line);
  if (text.starts_with('|')) return true;
  if (text.starts_with('`') || text.starts_with('~')) {
    const size_t run = std::min(text.find_first_not_of(text[0]), text.size());
    return line.size() < kMaxSpanBytes && (run >= 3 || run == text.size());
  }
  return line.find_first_not_of(kMarks) == kNone;
}

std::vector<std::string> CellsOf(std::string_view line) {
  line = Trimmed(line);
  line.remove_prefix(1);
  std::vector<std::string> cells(1);
  for (size_t at = 0; at < line.size(); ++at) {
    if (line.substr(at, 2) == "\\|") {
      cells.back() += line[++at];
    } else if (line[at] != '|') {
      cells.back() += line[at];
    } else if (at + 1 < line.size()) {
      cells.emplace_back();
    }
  }
  for (std::string& cell : cells) cell = std::string(Trimmed(cell));
  return cells;
}

// Returns whether the cells are those of the line below a table's head.
bool AreMarks(const std::vector<std::string>& cells) {
  return std::all_of(cells.begin(), cells.end(), [](const std::string& cell) {
    return cell.find('-') != kNone && cell.find_first_not_of(":-") == kNone;
  });
}

std::string Repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

struct Table {
  std::vector<std::vector<StyledText>> rows;  // the first one is the head
  std::vector<std::string> marks;  // below the head; empty: there are none

  std::vector<int> Widths() const {
    std::vector<int> widths;
    for (const auto& row : rows) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t i = 0; i < row.size(); ++i) {
        widths[i] = std::max(widths[i], row[i].columns());
      }
    }
    return widths;
  }
  int Columns() const {
    int columns = -3;  // between two cells are three
    for (const int width : Widths()) columns += width + 3;
    return columns;
  }
  // Returns how many of `space` columns are left of a cell.
  int Left(size_t cell, int space) const {
    if (cell >= marks.size() || !marks[cell].ends_with(':')) return 0;
    return marks[cell].starts_with(':') ? space / 2 : space;
  }
};

std::string GridOf(Table& table) {
  const std::vector<int> widths = table.Widths();
  std::string rule;
  for (const int width : widths) {
    rule += (rule.empty() ? "" : "─┼─") + Repeated("─", width);
  }
  std::string out;
  for (auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const int space = widths[i] - row[i].columns();
      const int left = table.Left(i, space);
      if (i > 0) out += Styled(kDim, " │ ");
      out += Repeated(" ", left) + row[i].Take();
      if (i + 1 < row.size()) out += Repeated(" ", space - left);
    }
    out += "\n";
    if (&row == &table.rows[0] && !table.marks.empty()) {
      out += Styled(kDim, rule) + "\n";
    }
  }
  return out;
}

// Returns a line per cell, behind its column's name; an empty line between
// rows.
std::string ListOf(Table& table) {
  std::string out;
  for (size_t r = table.rows.size() > 1 ? 1 : 0; r < table.rows.size(); ++r) {
    if (r > 1) out += "\n";
    for (size_t i = 0; i < table.rows[r].size(); ++i) {
      if (r > 0 && i < table.rows[0].size()) {
        StyledText name = table.rows[0][i];
        out += name.Take() + ": ";
      }
      out += table.rows[r][i].Take() + "\n";
    }
  }
  return out;
}

}  // namespace

std::string Markdown::Push(std::string_view text) {
  const std::string plain = WithoutControls(characters_.Push(text));
  std::string_view rest = plain;
  std::string out;
  for (size_t end = rest.find('\n'); end != kNone; end = rest.find('\n')) {
    line_ += rest.substr(0, end);
    rest.remove_prefix(end + 1);
    out += EndLine();
  }
  line_ += rest;
  return out + ShowPart();
}

std::string Markdown::Finish() {
  line_ += characters_.Finish();
  std::string out;
  if (!line_.empty() || is_begun_) out = EndLine();
  if (!table_.empty()) out = EndTable();
  if (!out.empty()) out.pop_back();  // the text has no new line at its end
  fence_.clear();
  return out;
}

std::string Markdown::ShowPart() {
  if (!fence_.empty()) {
    if (!is_begun_ && MayClose(line_, fence_)) return "";
    is_begun_ = true;
    return Styled(kCode, std::exchange(line_, {}));
  }
  if (!is_begun_ && IsOpen(line_)) return "";
  std::string out;
  if (!is_begun_) out = BeginLine();
  return out + RestOfLine(false);
}

std::string Markdown::EndLine() {
  std::string out;
  const bool is_text = is_begun_ || HasTooManyMarks(line_);
  if (!fence_.empty()) {
    if (!is_begun_ && Closes(line_, fence_)) {
      fence_.clear();
      out = Styled(kDim, line_);
    } else {
      out = Styled(kCode, line_);
    }
  } else if (!is_text && IsTableLine(line_)) {
    table_.push_back(std::exchange(line_, {}));
    return "";
  } else if (!is_text && !FenceOf(line_).empty()) {
    fence_ = FenceOf(line_);
    out = EndTable() + Styled(kDim, line_);
  } else if (!is_text && IsRule(line_)) {
    const int columns = std::min(columns_, kRuleColumns);
    out = EndTable() + Styled(kDim, Repeated("─", columns));
  } else {
    if (!is_begun_) out = BeginLine();
    out += RestOfLine(true);
  }
  line_.clear();
  is_begun_ = false;
  style_ = {};
  return out + "\n";
}

// Shows what a line begins with in the place of its marks.
std::string Markdown::BeginLine() {
  std::string out = EndTable();
  is_begun_ = true;
  before_ = ' ';
  if (HasTooManyMarks(line_)) return out;
  const size_t indent = std::min(line_.find_first_not_of(" \t"), line_.size());
  out += line_.substr(0, indent);
  line_.erase(0, indent);
  while (line_.starts_with('>')) {
    out += Styled(kDim, "│ ");
    line_.erase(0, line_.starts_with("> ") ? 2 : 1);
  }
  const size_t hashes = std::min(line_.find_first_not_of('#'), line_.size());
  if (hashes >= 1 && hashes <= 6 && line_.substr(hashes, 1) == " ") {
    style_.bold = true;
    style_.underline = hashes == 1;
    line_.erase(0, hashes + 1);
  } else if (line_.starts_with("- ") || line_.starts_with("* ") ||
             line_.starts_with("+ ")) {
    out += "• ";
    line_.erase(0, 2);
  }
  return out;
}

std::string Markdown::RestOfLine(bool is_end) {
  StyledText out;
  const size_t used = PutInline({line_, style_, before_, is_end}, out);
  if (used > 0) before_ = line_[used - 1];
  line_.erase(0, used);
  return out.Take();
}

std::string Markdown::EndTable() {
  if (table_.empty()) return "";
  Table table;
  for (const std::string& line : std::exchange(table_, {})) {
    const std::vector<std::string> cells = CellsOf(line);
    if (table.rows.size() == 1 && table.marks.empty() && AreMarks(cells)) {
      table.marks = cells;
      continue;
    }
    const Style style = table.rows.empty() ? kBold : Style();
    table.rows.emplace_back();
    for (const std::string& cell : cells) {
      PutInline({cell, style}, table.rows.back().emplace_back());
    }
  }
  return table.Columns() <= columns_ ? GridOf(table) : ListOf(table);
}

}  // namespace sluice::chat
