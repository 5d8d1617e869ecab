#include <algorithm>
#include <optional>
#include <string>

#include "common/text/output/arguments_writer.h"
#include "common/text/output/call_reader.h"
#include "common/text/utf8.h"

namespace sluice {
namespace {

bool IsQuote(char c) { return c == '"' || c == '\''; }

bool IsWord(std::string_view text) {
  return text == "True" || text == "False" || text == "None";
}

// Strings, numbers, lists: what no name begins with.
bool BeginsLiteral(char c) {
  return IsQuote(c) || c == '[' || c == '{' || c == '(' || c == '-' ||
         (c >= '0' && c <= '9');
}

std::optional<char32_t> HexOf(std::string_view digits) {
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  if (digits.find_first_not_of(kHex) != digits.npos) return std::nullopt;
  return static_cast<char32_t>(std::stoul(std::string(digits), nullptr, 16));
}

bool IsNameByte(char c) {
  return IsCallName(std::string_view(&c, 1)) ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Looks at the text behind a quote, up to a bound.
class Ahead {
 public:
  using Match = PendingText::Match;
  explicit Ahead(const PendingText& input)
      : input_(input), text_(input.text().substr(0, kMaxSize)) {}

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
  size_t at_ = 1;
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
          ReadBefore(c, input, out);
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

  void ReadBefore(char c, PendingText& input, EventWriter& out) {
    if (IsBlank(c)) {
      input.Consume(1);
      return;
    }
    if (is_dropped_) {
      arguments_.BeginDropped();
    } else {
      arguments_.BeginValue(TrimBlanks(key_), out,
                            IsQuote(c) ? ValueForm::kText : ValueForm::kPython);
    }
    ++num_values_;
    key_.clear();
    quote_ = '\0';
    depth_ = 0;
    state_ = State::kValue;
    if (!IsQuote(c)) return;
    quote_ = c;
    input.Consume(1);
    state_ = State::kText;
  }

  // Reads a character of a string, or an escape. False: needs more text.
  bool ReadText(char c, PendingText& input, EventWriter& out) {
    if (c == quote_) {
      const Match end = EndsText(input);
      if (end == Match::kMaybe) return false;
      input.Consume(1);
      if (end == Match::kNo) {
        arguments_.Value(std::string_view(&c, 1), out);
        return true;
      }
      arguments_.EndValue(out);
      quote_ = '\0';
      state_ = State::kKey;
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

  // Returns whether the quote at the front ends its string. Templates write
  // strings without escapes, so it may be an apostrophe of theirs: behind a
  // string stand the next argument, or the end of the call and what follows a
  // call.
  Match EndsText(const PendingText& input) const {
    Ahead ahead(input);
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

  bool ReadEscape(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    if (text.size() < 2) return false;
    constexpr std::string_view kLetters = "nrtbf0";
    constexpr std::string_view kMeant = {"\n\r\t\b\f\0", 6};
    const char c = text[1];
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      if (text.size() < 2 + digits) return false;
      if (const auto code = HexOf(text.substr(2, digits))) {
        return WriteCode(*code, 2 + digits, input, out);
      }
    }
    const size_t letter = kLetters.find(c);
    if (letter != kLetters.npos) {
      arguments_.Value(kMeant.substr(letter, 1), out);
    } else if (c == '\'' || c == '"' || c == '\\') {
      arguments_.Value(text.substr(1, 1), out);
    } else {
      arguments_.Value(text.substr(0, 1), out);  // Python keeps it
      input.Consume(1);
      return true;
    }
    input.Consume(2);
    return true;
  }

  // Writes the character of an escape of `size` bytes, or of two escapes that
  // are halves of a character. False: needs more text.
  bool WriteCode(char32_t code, size_t size, PendingText& input,
                 EventWriter& out) {
    constexpr char32_t kReplacement = 0xFFFD;
    if (code >= 0xD800 && code < 0xDC00) {
      constexpr size_t kSize = 6;  // of the other half
      const std::string_view other = input.text().substr(size, kSize);
      const bool may_follow =
          std::string_view("\\u").starts_with(other.substr(0, 2)) ||
          other.starts_with("\\u");
      if (other.size() < kSize && may_follow && !input.ended()) return false;
      if (other.size() == kSize && may_follow) {
        const char32_t low = HexOf(other.substr(2)).value_or(0);
        if (low >= 0xDC00 && low < 0xE000) {
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          size += kSize;
        }
      }
    }
    const bool is_half = code >= 0xD800 && code < 0xE000;
    std::string decoded;
    AppendUtf8(is_half || code > 0x10FFFF ? kReplacement : code, decoded);
    arguments_.Value(decoded, out);
    input.Consume(size);
    return true;
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
      if (state_ == State::kText || state_ == State::kValue) {
        arguments_.EndValue(out);
      }
      arguments_.EndCall(out);
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
  bool escaped_ = false;
  size_t depth_ = 0;
};

}  // namespace

std::unique_ptr<CallReader> NewPythonCallReader(const ToolTypes& tools,
                                                const CallMarkup& markup) {
  return std::make_unique<PythonCallReader>(tools, markup.close);
}

}  // namespace sluice
