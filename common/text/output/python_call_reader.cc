#include <algorithm>
#include <string>

#include "common/text/output/arguments_writer.h"
#include "common/text/output/call_reader.h"
#include "common/text/utf8.h"

namespace sluice {
namespace {

bool IsQuote(char c) { return c == '"' || c == '\''; }

// One call of a list, NAME(K=V, ..), with a bracket before the first. Strings
// are written as they come; a value of another kind is held back until it is
// whole.
class PythonCallReader : public CallReader {
 public:
  explicit PythonCallReader(const ToolTypes& tools)
      : tools_(tools), arguments_(tools) {}

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
    }
    while (state_ != State::kEnd) {
      if (input.text().empty()) {
        return input.ended() ? AtEnd(input, out) : Result::kMore;
      }
      const char c = input.text().front();
      bool waits = false;
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
          ReadValue(c, input, out);
          break;
      }
      if (waits) return input.ended() ? AtEnd(input, out) : Result::kMore;
    }
    return Result::kDone;
  }

 private:
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
    arguments_.BeginCall(name, out);
    input.Consume(end + 1);
    return Result::kDone;
  }

  void ReadKey(char c, PendingText& input, EventWriter& out) {
    input.Consume(1);
    if (c == ')') {
      arguments_.EndCall(out);
      state_ = State::kEnd;
    } else if (c == '=') {
      state_ = State::kBefore;
    } else if (c == ',') {
      key_.clear();
    } else if (key_.size() < kMaxParameterName) {
      key_ += c;
    }
  }

  void ReadBefore(char c, PendingText& input, EventWriter& out) {
    if (IsBlank(c)) {
      input.Consume(1);
      return;
    }
    arguments_.BeginValue(TrimBlanks(key_), out, /*is_text=*/IsQuote(c));
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
      input.Consume(1);
      arguments_.EndValue(out);
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

  bool ReadEscape(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    if (text.size() < 2) return false;
    constexpr std::string_view kLetters = "nrtbf0";
    constexpr std::string_view kMeant = {"\n\r\t\b\f\0", 6};
    const char c = text[1];
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      if (text.size() < 2 + digits) return false;
      const std::string_view hex = text.substr(2, digits);
      if (hex.find_first_not_of("0123456789abcdefABCDEF") == hex.npos) {
        std::string decoded;
        AppendUtf8(
            static_cast<char32_t>(std::stoul(std::string(hex), nullptr, 16)),
            decoded);
        arguments_.Value(Utf8Lossy(decoded), out);
        input.Consume(2 + digits);
        return true;
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

  // Reads a byte of a value that is no string.
  void ReadValue(char c, PendingText& input, EventWriter& out) {
    if (quote_ != '\0') {
      if (c == quote_ && !escaped_) quote_ = '\0';
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
        return;
      }
      input.Consume(1);
      state_ = State::kKey;
      return;
    }
    arguments_.Value(input.text().substr(0, 1), out);
    input.Consume(1);
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
  ArgumentsWriter arguments_;
  bool known_only_ = false;
  State state_ = State::kHead;
  std::string key_;
  char quote_ = '\0';  // within quotes
  bool escaped_ = false;
  size_t depth_ = 0;
};

}  // namespace

std::unique_ptr<CallReader> NewPythonCallReader(const ToolTypes& tools,
                                                const CallMarkup&) {
  return std::make_unique<PythonCallReader>(tools);
}

}  // namespace sluice
