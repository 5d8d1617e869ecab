#include <algorithm>
#include <string>

#include "common/text/output/arguments_writer.h"
#include "common/text/output/call_reader.h"
#include "common/text/output/python_literal.h"

namespace sluice {
namespace {

bool IsWord(std::string_view text) {
  return text == "True" || text == "False" || text == "None";
}

// Strings, numbers, lists: what no name begins with.
bool BeginsLiteral(char c) {
  return IsQuote(c) || c == '[' || c == '{' || c == '(' || c == '-' ||
         (c >= '0' && c <= '9');
}

bool IsNameByte(char c) {
  return IsCallName(std::string_view(&c, 1)) ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Looks at the text behind quotes, up to a bound.
class Ahead {
 public:
  using Match = PendingText::Match;
  // `at`: the first byte that is looked at.
  Ahead(const PendingText& input, size_t at)
      : input_(input),
        text_(input.text().substr(0, kMaxSize)),
        at_(std::min(at, text_.size())) {}

  // Returns the byte behind white space; '\0' if there is none.
  char Peek() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void Step() { ++at_; }
  // Steps over white space and a name.
  std::string_view TakeName() {
    Peek();
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameByte(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // Each returns whether white space and then `c`, `tag` or nothing more
  // follows. The end of the output counts as any of them.
  Match Is(char c) { return Peek() == c ? Match::kYes : IsEnd(); }
  Match Is(std::string_view tag) {
    return Peek() == '\0' ? IsEnd() : input_.FindNext({tag}, at_);
  }
  Match IsEnd() {
    if (Peek() != '\0' || at_ < text_.size() || at_ == kMaxSize) {
      return Match::kNo;
    }
    return input_.ended() ? Match::kYes : Match::kMaybe;
  }

 private:
  static constexpr size_t kMaxSize = 2 * kMaxParameterName;

  const PendingText& input_;
  const std::string_view text_;
  size_t at_;
};

// One call of a list, NAME(K=V, ..), with a bracket before the first. Strings
// are written as they come; a value of another kind is held back until it is
// whole.
class PythonCallReader : public CallReader {
 public:
  PythonCallReader(const ToolTypes& tools, std::string_view close_tag)
      : tools_(tools), close_(close_tag), arguments_(tools) {}

  void Begin(bool known_only) override {
    known_only_ = known_only;
    state_ = State::kHead;
  }

  Result Read(PendingText& input, EventWriter& out) override {
    if (state_ == State::kHead) {
      const Result head = ReadHead(input, out);
      if (head != Result::kDone) return head;
      state_ = State::kKey;
      key_.clear();
      quote_ = '\0';
      by_place_ = true;
      num_values_ = 0;
    }
    while (state_ != State::kEnd) {
      if (input.text().empty()) {
        return input.ended() ? AtEnd(input, out) : Result::kMore;
      }
      const char c = input.text().front();
      bool waits = false;
      const Match close = FindClose(c, input);
      if (close == Match::kMaybe) return Result::kMore;
      if (close == Match::kYes) {
        EndCall(out);
        break;
      }
      switch (state_) {
        case State::kKey:
          ReadKey(c, input, out);
          break;
        case State::kBefore:
          waits = !ReadBefore(c, input, out);
          break;
        case State::kText:
          waits = !ReadText(c, input, out);
          break;
        default:
          waits = !ReadValue(c, input, out);
          break;
      }
      if (waits) return input.ended() ? AtEnd(input, out) : Result::kMore;
    }
    return Result::kDone;
  }

 private:
  using Match = PendingText::Match;
  enum class State { kHead, kKey, kBefore, kText, kValue, kEnd };

  Result ReadHead(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    const size_t begin =
        std::min(text.find_first_not_of(" \t\r\n["), text.size());
    size_t end = begin;
    while (end < text.size() && IsCallName(text.substr(end, 1))) ++end;
    if (end > kMaxCallHead) return Result::kNoCall;
    if (end == text.size()) {
      return input.ended() ? Result::kNoCall : Result::kMore;
    }
    const std::string_view name = text.substr(begin, end - begin);
    const bool known = tools_.Has(name);
    if (text[end] != '(' || name.empty() || (known_only_ && !known)) {
      return Result::kNoCall;
    }
    name_ = name;
    arguments_.BeginCall(name_, out);
    input.Consume(end + 1);
    return Result::kDone;
  }

  // Finds the closing tag, or a bracket between arguments: a parenthesis is
  // missing. Nothing within quotes.
  Match FindClose(char c, const PendingText& input) const {
    const bool in_text = state_ == State::kText || quote_ != '\0';
    if (in_text) return Match::kNo;
    if (state_ == State::kKey && c == ']') return Match::kYes;
    return input.Find(close_);
  }

  void EndCall(EventWriter& out) {
    if (state_ == State::kKey) WriteWord(out);
    if (state_ == State::kValue) arguments_.EndValue(out);
    arguments_.EndCall(out);
    state_ = State::kEnd;
  }

  // A value without a name has the name at its place in the schema; beyond the
  // schema's last it is dropped.
  void ReadKey(char c, PendingText& input, EventWriter& out) {
    if (BeginsLiteral(c) && TrimBlanks(key_).empty()) {
      key_ = by_place_ ? tools_.NameAt(name_, num_values_) : "";
      is_dropped_ = key_.empty();
      state_ = State::kBefore;
      return;
    }
    input.Consume(1);
    if (c == '=') {
      is_dropped_ = false;
      by_place_ = false;
      state_ = State::kBefore;
    } else if (c == ',' || c == ')') {
      WriteWord(out);
      key_.clear();
      if (c == ',') return;
      arguments_.EndCall(out);
      state_ = State::kEnd;
    } else if (key_.size() < kMaxParameterName) {
      key_ += c;
    }
  }

  // Writes a word without a name, if it is a value.
  void WriteWord(EventWriter& out) {
    const std::string word(TrimBlanks(key_));
    const std::string_view name = tools_.NameAt(name_, num_values_);
    if (!IsWord(word) || !by_place_ || name.empty()) return;
    arguments_.BeginValue(name, out, ValueForm::kPython);
    arguments_.Value(word, out);
    arguments_.EndValue(out);
    ++num_values_;
  }

  // Reads to the value, or into its quotes. False: needs more text.
  bool ReadBefore(char c, PendingText& input, EventWriter& out) {
    if (IsBlank(c)) {
      input.Consume(1);
      return true;
    }
    StringHead head;
    if (!FindString(input, head)) return false;
    if (is_dropped_) {
      arguments_.BeginDropped();
    } else {
      arguments_.BeginValue(
          TrimBlanks(key_), out,
          head.size > 0 ? ValueForm::kText : ValueForm::kPython);
    }
    ++num_values_;
    key_.clear();
    quote_ = '\0';
    depth_ = 0;
    state_ = State::kValue;
    if (head.size == 0) return true;
    is_raw_ = head.is_raw;
    quotes_ = head.quotes;
    quote_ = input.text()[head.size - 1];
    input.Consume(head.size);
    state_ = State::kText;
    return true;
  }

  // What begins a string.
  struct StringHead {
    size_t size = 0;    // with a letter before the quotes; 0: no string begins
    size_t quotes = 1;  // or three
    bool is_raw = false;
  };

  // False: needs more text.
  static bool FindString(const PendingText& input, StringHead& head) {
    constexpr std::string_view kPrefixes = "rRuU";
    const std::string_view text = input.text();
    const size_t prefix = kPrefixes.find(text.front()) != kPrefixes.npos;
    if (prefix == text.size()) return input.ended();
    const char quote = text[prefix];
    if (!IsQuote(quote)) return true;
    head.is_raw = prefix == 1 && (text.front() | 0x20) == 'r';
    const std::string three(3, quote);
    const Match triple = input.Find(three, prefix);
    if (triple == Match::kMaybe) return false;
    if (triple == Match::kYes) head.quotes = three.size();
    head.size = prefix + head.quotes;
    return true;
  }

  // Reads a character of a string, or an escape. False: needs more text.
  bool ReadText(char c, PendingText& input, EventWriter& out) {
    if (c == quote_) {
      const Match end = EndsText(input);
      if (end == Match::kMaybe) return false;
      if (end == Match::kYes) {
        input.Consume(std::min(quotes_, input.text().size()));
        EndText(out);
      } else {
        arguments_.Value(std::string_view(&c, 1), out);
        input.Consume(1);
      }
      return true;
    }
    if (c != '\\') {
      const std::string_view text = input.text();
      const char ends[] = {quote_, '\\', '\0'};
      const size_t size = std::min(text.find_first_of(ends), text.size());
      arguments_.Value(text.substr(0, size), out);
      input.Consume(size);
      return true;
    }
    return ReadEscape(input, out);
  }

  // Returns whether the quotes at the front end their string. Templates write
  // strings without escapes, so it may be an apostrophe of theirs: behind a
  // string stand the next argument, or the end of the call and what follows a
  // call.
  Match EndsText(const PendingText& input) const {
    const std::string quotes(quotes_, quote_);
    const Match found = input.Find(quotes);
    if (input.EndsWithin(quotes, 0)) return Match::kYes;
    if (found != Match::kYes) return found;
    Ahead ahead(input, quotes_);
    const char c = ahead.Peek();
    if (c != ',' && c != ')' && c != ']') return ahead.Is(close_);
    ahead.Step();
    if (c == ',') return BeginsArgument(ahead);
    if (c == ']') return ahead.Is(close_);
    const char next = ahead.Peek();
    if (next == ']' || next == ';') return Match::kYes;
    if (next != ',') return ahead.Is(close_);
    ahead.Step();
    return ahead.TakeName().empty() ? ahead.IsEnd() : ahead.Is('(');
  }

  Match BeginsArgument(Ahead& ahead) const {
    const char c = ahead.Peek();
    if (c == ')' || (by_place_ && BeginsLiteral(c))) return Match::kYes;
    const std::string_view name = ahead.TakeName();
    if (name.empty()) return ahead.IsEnd();
    const char next = ahead.Peek();
    const bool is_value = by_place_ && IsWord(name);
    if (is_value && (next == ',' || next == ')')) return Match::kYes;
    return ahead.Is('=');
  }

  // Reads a backslash and what it escapes. False: needs more text.
  bool ReadEscape(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    if (text.size() < 2 && !input.ended()) return false;
    if (is_raw_) {
      arguments_.Value(text.substr(0, 2), out);
      input.Consume(std::min<size_t>(2, text.size()));
      return true;
    }
    if (text.size() > 1 && text[1] == quote_ && quotes_ == 1) {
      const Match end = EndsCall(input, 2);
      if (end == Match::kMaybe) return false;
      if (end == Match::kYes) {
        arguments_.Value("\\", out);
        input.Consume(2);
        EndText(out);
        return true;
      }
    }
    const PythonEscape escape = ReadPythonEscape(text, input.ended());
    if (escape.size == 0) return false;
    arguments_.Value(escape.text, out);
    input.Consume(escape.size);
    return true;
  }

  // Returns whether the end of the call and its closing tag stand at `at`: a
  // path may end with a backslash that escapes nothing.
  Match EndsCall(const PendingText& input, size_t at) const {
    Ahead ahead(input, at);
    if (ahead.Peek() != ')') {
      return ahead.IsEnd() == Match::kMaybe ? Match::kMaybe : Match::kNo;
    }
    ahead.Step();
    if (ahead.Peek() == ']') ahead.Step();
    const bool is_cut = input.cut_short() && ahead.Peek() == '\0';
    return is_cut ? Match::kNo : ahead.Is(close_);
  }

  void EndText(EventWriter& out) {
    arguments_.EndValue(out);
    quote_ = '\0';
    state_ = State::kKey;
  }

  // Reads a byte of a value that is no string. False: needs more text.
  bool ReadValue(char c, PendingText& input, EventWriter& out) {
    if (quote_ != '\0') {
      if (c == quote_ && !escaped_) {
        const std::string_view behind = input.text().substr(1, kMaxCallHead);
        const bool waits =
            IsBlank(behind) && behind.size() < kMaxCallHead && !input.ended();
        if (waits) return false;
        if (EndsListedText(behind)) quote_ = '\0';
      }
      escaped_ = c == '\\' && !escaped_;
    } else if (IsQuote(c)) {
      quote_ = c;
      escaped_ = false;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth_;
    } else if (depth_ > 0 && (c == ']' || c == '}' || c == ')')) {
      --depth_;
    } else if (depth_ == 0 && (c == ',' || c == ')' || c == ']')) {
      arguments_.EndValue(out);
      if (c != ',') {
        if (c == ')') input.Consume(1);
        arguments_.EndCall(out);
        state_ = State::kEnd;
        return true;
      }
      input.Consume(1);
      state_ = State::kKey;
      return true;
    }
    arguments_.Value(input.text().substr(0, 1), out);
    input.Consume(1);
    return true;
  }

  Result AtEnd(PendingText& input, EventWriter& out) {
    input.Consume(input.text().size());
    if (input.stopped()) {
      if (state_ == State::kText) arguments_.EndValue(out);
      EndCall(out);
    } else {
      arguments_.Abandon();
    }
    return Result::kDone;
  }

  const ToolTypes& tools_;
  const std::string_view close_;
  ArgumentsWriter arguments_;
  bool known_only_ = false;
  State state_ = State::kHead;
  std::string name_;
  std::string key_;
  bool by_place_ = true;     // no value had a name yet
  size_t num_values_ = 0;    // that have begun
  bool is_dropped_ = false;  // the value has no name and no place
  char quote_ = '\0';        // within quotes
  size_t quotes_ = 1;        // around the string: one, or three
  bool is_raw_ = false;      // backslashes of the string escape nothing
  bool escaped_ = false;
  size_t depth_ = 0;
};

}  // namespace

std::unique_ptr<CallReader> NewPythonCallReader(const ToolTypes& tools,
                                                const CallMarkup& markup) {
  return std::make_unique<PythonCallReader>(tools, markup.close);
}

}  // namespace sluice
