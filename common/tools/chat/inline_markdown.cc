#include "common/tools/chat/inline_markdown.h"

#include <algorithm>
#include <utility>

#include "common/tools/chat/terminal_text.h"

namespace sluice::chat {
namespace {

constexpr int kMaxDepth = 4;  // of spans in spans
constexpr size_t kNotThere = std::string_view::npos;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool IsPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}
// A byte of a character beyond ASCII counts as part of a word.
bool IsWord(char c) { return !IsSpace(c) && !IsPunctuation(c); }

std::string Sgr(const Style& style) {
  std::string codes = "\x1b[0";
  if (style.bold) codes += ";1";
  if (style.dim) codes += ";2";
  if (style.italic) codes += ";3";
  if (style.underline) codes += ";4";
  if (style.strike) codes += ";9";
  if (style.code) codes += ";36";
  return codes + "m";
}

// A reader of one part.
class Inline {
 public:
  Inline(const InlinePart& part, int depth, StyledText& out)
      : text_(part.text),
        style_(part.style),
        before_(part.before),
        is_end_(part.is_end),
        depth_(depth),
        out_(out) {}

  size_t Put() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const size_t was = at_;
      bool whole = true;
      if (c == '\\') {
        whole = PutEscaped();
      } else if (c == '`') {
        whole = PutCode();
      } else if (c == '*' || c == '_' || c == '~') {
        whole = PutEmphasis();
      } else if (c == '[') {
        whole = PutLink();
      } else {
        const size_t next = text_.find_first_of("\\`*_~[", at_);
        PutTo(std::min(next, text_.size()));
      }
      if (!whole) return was;
    }
    return at_;
  }

 private:
  // What is looked for from a mark on: it is at `at`, it is not there, or more
  // bytes may bring it.
  enum class Found { kYes, kNo, kMaybe };
  struct Place {
    Found found;
    size_t at = 0;
  };

  Place NotFound(size_t from) const {
    return {!is_end_ && text_.size() - from < kMaxSpanBytes ? Found::kMaybe
                                                            : Found::kNo};
  }
  size_t Limit(size_t from) const {
    return std::min(text_.size(), from + kMaxSpanBytes);
  }
  // Returns how often the byte at `at` follows itself; kMaxSpanBytes at most.
  size_t RunAt(size_t at) const {
    const size_t end = text_.find_first_not_of(text_[at], at);
    return std::min((end == kNotThere ? text_.size() : end) - at,
                    kMaxSpanBytes);
  }
  // Returns whether more bytes may follow the last one, which is before `end`.
  bool MayGrow(size_t end) const { return end >= text_.size() && !is_end_; }
  bool RunMayGrow(size_t at, size_t run) const {
    return run < kMaxSpanBytes && MayGrow(at + run);
  }
  char Before(size_t at) const { return at == 0 ? before_ : text_[at - 1]; }
  char After(size_t at) const { return at < text_.size() ? text_[at] : ' '; }

  void PutTo(size_t end) {
    out_.Put(style_, text_.substr(at_, end - at_));
    at_ = end;
  }
  void PutSpan(size_t begin, size_t end, const Style& style) {
    if (depth_ >= kMaxDepth) {
      out_.Put(style, text_.substr(begin, end - begin));
      return;
    }
    Inline({text_.substr(begin, end - begin), style, ' ', true}, depth_ + 1,
           out_)
        .Put();
  }

  bool PutEscaped() {
    if (MayGrow(at_ + 1)) return false;
    if (IsPunctuation(After(at_ + 1))) ++at_;  // the backslash is left out
    PutTo(at_ + 1);
    return true;
  }

  Place FindRun(size_t from, size_t begin, size_t run) const {
    const char c = text_[from];
    for (size_t at = begin; at < Limit(from);) {
      at = text_.find(c, at);
      if (at == kNotThere || at >= Limit(from)) break;
      const size_t length = RunAt(at);
      if (RunMayGrow(at, length)) return {Found::kMaybe};
      if (length == run) return {Found::kYes, at};
      at += length;
    }
    return NotFound(from);
  }

  bool PutCode() {
    const size_t run = RunAt(at_);
    if (RunMayGrow(at_, run)) return false;
    const Place end = FindRun(at_, at_ + run, run);
    if (end.found == Found::kMaybe) return false;
    if (end.found == Found::kNo) {
      PutTo(at_ + run);
      return true;
    }
    std::string_view code = text_.substr(at_ + run, end.at - at_ - run);
    // `` ` `` is a backtick: a space at both ends is the marks'.
    if (code.size() > 2 && code.front() == ' ' && code.back() == ' ') {
      code = code.substr(1, code.size() - 2);
    }
    Style style = style_;
    style.code = true;
    out_.Put(style, code);
    at_ = end.at + run;
    return true;
  }

  // Returns the run of `mark`s that closes the one of `run` at `from`.
  Place FindCloser(size_t from, size_t run) const {
    const char mark = text_[from];
    for (size_t at = from + run; at < Limit(from);) {
      const char c = text_[at];
      if (c == '\\') {
        at += 2;
      } else if (c == '`') {
        const size_t ticks = RunAt(at);
        if (RunMayGrow(at, ticks)) return {Found::kMaybe};
        const Place end = FindRun(at, at + ticks, ticks);
        if (end.found == Found::kMaybe) return end;
        at = end.found == Found::kYes ? end.at + ticks : at + ticks;
      } else if (c == mark) {
        const size_t length = RunAt(at);
        if (RunMayGrow(at, length)) return {Found::kMaybe};
        const bool inside = mark == '_' && IsWord(After(at + length));
        if (length == run && !inside && !IsSpace(text_[at - 1])) {
          return {Found::kYes, at};
        }
        at += length;
      } else {
        ++at;
      }
    }
    return NotFound(from);
  }

  bool PutEmphasis() {
    const char mark = text_[at_];
    const size_t run = RunAt(at_);
    if (RunMayGrow(at_, run)) return false;
    const bool opens = (mark == '~' ? run == 2 : run <= 3) &&
                       !IsSpace(After(at_ + run)) &&
                       !(mark == '_' && IsWord(Before(at_)));
    const Place end = opens ? FindCloser(at_, run) : Place{Found::kNo};
    if (end.found == Found::kMaybe) return false;
    if (end.found == Found::kNo) {
      PutTo(at_ + run);
      return true;
    }
    Style style = style_;
    style.strike = style.strike || mark == '~';
    style.italic = style.italic || (mark != '~' && run != 2);
    style.bold = style.bold || (mark != '~' && run >= 2);
    PutSpan(at_ + run, end.at, style);
    at_ = end.at + run;
    return true;
  }

  Place FindInSpan(char c, size_t begin) const {
    const size_t at = text_.find(c, begin);
    if (at != kNotThere && at < Limit(at_)) return {Found::kYes, at};
    return NotFound(at_);
  }

  // [text](address)
  bool PutLink() {
    const Place close = FindInSpan(']', at_ + 1);
    Place end = close;
    if (close.found == Found::kYes) {
      if (MayGrow(close.at + 1)) return false;
      end = After(close.at + 1) == '(' ? FindInSpan(')', close.at + 2)
                                       : Place{Found::kNo};
    }
    if (end.found == Found::kMaybe) return false;
    const std::string_view text = text_.substr(
        at_ + 1, end.found == Found::kYes ? close.at - at_ - 1 : 0);
    if (text.empty() || text.find('[') != kNotThere) {
      PutTo(at_ + 1);
      return true;
    }
    const std::string_view address =
        text_.substr(close.at + 2, end.at - close.at - 2);
    Style style = style_;
    style.underline = true;
    PutSpan(at_ + 1, close.at, style);
    style = style_;
    style.dim = true;
    if (address != text) {
      out_.Put(style, " (");
      out_.Put(style, address);
      out_.Put(style, ")");
    }
    at_ = end.at + 1;
    return true;
  }

  const std::string_view text_;
  const Style style_;
  const char before_;
  const bool is_end_;
  const int depth_;
  StyledText& out_;
  size_t at_ = 0;
};

}  // namespace

void StyledText::Put(const Style& style, std::string_view text) {
  if (text.empty()) return;
  if (!(style == style_)) text_ += Sgr(style);
  style_ = style;
  text_ += text;
  columns_ += DisplayWidth(text);
}

std::string StyledText::Take() {
  if (!(style_ == Style())) text_ += "\x1b[0m";
  style_ = {};
  return std::exchange(text_, {});
}

size_t PutInline(const InlinePart& part, StyledText& out) {
  return Inline(part, 0, out).Put();
}

}  // namespace sluice::chat
