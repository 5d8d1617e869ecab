#include <algorithm>
#include <string>

#include "common/base/json.h"
#include "common/text/output/call_reader.h"

namespace sluice {
namespace {

constexpr std::string_view kCallMark = "call:";
constexpr size_t kMaxBrackets = 256;

// call:NAME{K:V, ..}: JSON whose names have no quotes and whose strings stand
// between marks of their own; JSON's quotes are read, too.
class GemmaCallReader : public CallReader {
 public:
  GemmaCallReader(const ToolTypes& tools, const CallMarkup& markup)
      : tools_(tools), markup_(markup) {}

  void Begin(bool known_only) override {
    known_only_ = known_only;
    state_ = State::kHead;
    open_.clear();
    word_.clear();
  }

  Result Read(PendingText& input, EventWriter& out) override {
    if (state_ == State::kHead) {
      const Result head = ReadHead(input, out);
      if (head != Result::kDone) return head;
      state_ = State::kName;
      open_ = "}";
      out.Arguments("{");
    }
    while (state_ != State::kTail) {
      if (input.text().empty()) {
        return input.ended() ? AtEnd(input, out) : Result::kMore;
      }
      if (!ReadPart(input, out)) {
        return input.ended() ? AtEnd(input, out) : Result::kMore;
      }
    }
    return input.ConsumeTag(markup_.close) == Match::kMaybe ? Result::kMore
                                                            : Result::kDone;
  }

 private:
  using Match = PendingText::Match;
  enum class State {
    kHead,
    kName,    // before or within a name
    kValue,   // before or within a value
    kMarked,  // within a string between marks
    kQuoted,  // within a string of JSON
    kTail,
  };

  Result ReadHead(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    if (begin > kMaxCallHead) return Result::kNoCall;
    const Match call = input.Find(kCallMark, begin);
    if (call == Match::kMaybe) return Result::kMore;
    if (call == Match::kNo) return Result::kNoCall;
    begin += kCallMark.size();
    size_t end = begin;
    while (end < text.size() && IsCallName(text.substr(end, 1))) ++end;
    if (end > kMaxCallHead) return Result::kNoCall;
    if (end == text.size()) {
      return input.ended() ? Result::kNoCall : Result::kMore;
    }
    const std::string_view name = text.substr(begin, end - begin);
    if (text[end] != '{' || name.empty() ||
        (known_only_ && !tools_.Has(name))) {
      return Result::kNoCall;
    }
    out.BeginCall(name);
    input.Consume(end + 1);
    return Result::kDone;
  }

  // False: needs more text.
  bool ReadPart(PendingText& input, EventWriter& out) {
    const char c = input.text().front();
    if (state_ == State::kQuoted) {
      ReadQuoted(c, input, out);
      return true;
    }
    const Match mark = input.Find(kGemmaQuote);
    if (mark == Match::kMaybe) return false;
    if (state_ == State::kMarked) {
      ReadMarked(mark, input, out);
      return true;
    }
    if (mark == Match::kYes && TrimBlanks(word_).empty()) {
      input.Consume(kGemmaQuote.size());
      out.Arguments("\"");
      word_.clear();
      is_name_ = state_ == State::kName;
      state_ = State::kMarked;
      return true;
    }
    input.Consume(1);
    if (c == '"' && TrimBlanks(word_).empty()) {
      out.Arguments("\"");
      word_.clear();
      is_name_ = state_ == State::kName;
      escaped_ = false;
      state_ = State::kQuoted;
    } else if (c == ':' && state_ == State::kName) {
      WriteName(out);
      out.Arguments(": ");
      state_ = State::kValue;
    } else if (c == ',' || c == '}' || c == ']') {
      EndValue(c, out);
    } else if (state_ == State::kValue && (c == '{' || c == '[') &&
               open_.size() < kMaxBrackets && TrimBlanks(word_).empty()) {
      out.Arguments(std::string(1, c));
      open_ += c == '{' ? '}' : ']';
      state_ = c == '{' ? State::kName : State::kValue;
    } else if (word_.size() < kMaxHeldBytes) {
      word_ += c;
    }
    return true;
  }

  void ReadMarked(Match mark, PendingText& input, EventWriter& out) {
    if (mark == Match::kYes) {
      input.Consume(kGemmaQuote.size());
      out.Arguments("\"");
      state_ = is_name_ ? State::kName : State::kValue;
      return;
    }
    const std::string_view text = input.text();
    const size_t size = std::min(text.find('<', 1), text.size());
    std::string escaped;
    AppendJsonEscaped(text.substr(0, size), escaped);
    out.Arguments(escaped);
    input.Consume(size);
  }

  void ReadQuoted(char c, PendingText& input, EventWriter& out) {
    std::string piece(1, c);
    if (static_cast<unsigned char>(c) < 0x20) {
      piece.clear();
      AppendJsonEscaped(input.text().substr(0, 1), piece);
    }
    out.Arguments(piece);
    input.Consume(1);
    if (c == '"' && !escaped_) state_ = is_name_ ? State::kName : State::kValue;
    escaped_ = c == '\\' && !escaped_;
  }

  void WriteName(EventWriter& out) {
    const std::string_view name = TrimBlanks(word_);
    if (!name.empty()) WriteText(name, out);
    word_.clear();
  }

  static void WriteText(std::string_view text, EventWriter& out) {
    std::string quoted = "\"";
    AppendJsonEscaped(text, quoted);
    out.Arguments(quoted + "\"");
  }

  // A word is JSON if it is, else a string.
  void WriteWord(EventWriter& out) {
    const std::string_view word = TrimBlanks(word_);
    if (word.empty()) return;
    if (ParseJson(word).ok()) {
      out.Arguments(word);
    } else {
      WriteText(word, out);
    }
    word_.clear();
  }

  // Ends a value with a comma, or with a bracket that ends what is open.
  void EndValue(char c, EventWriter& out) {
    WriteWord(out);
    word_.clear();
    if (c == ',') {
      out.Arguments(", ");
      state_ = open_.back() == '}' ? State::kName : State::kValue;
      return;
    }
    out.Arguments(std::string(1, open_.back()));
    open_.pop_back();
    state_ = State::kValue;
    if (!open_.empty()) return;
    out.EndCall();
    state_ = State::kTail;
  }

  Result AtEnd(PendingText& input, EventWriter& out) {
    if (input.stopped()) {
      const bool in_text = state_ == State::kMarked || state_ == State::kQuoted;
      const bool is_cut = state_ == State::kQuoted && escaped_;
      if (in_text) out.Arguments(is_cut ? "\\\"" : "\"");
      if (state_ == State::kValue) WriteWord(out);
      std::string closers(open_.rbegin(), open_.rend());
      out.Arguments(closers);
      out.EndCall();
    }
    input.Consume(input.text().size());
    return Result::kDone;
  }

  const ToolTypes& tools_;
  const CallMarkup& markup_;
  bool known_only_ = false;
  State state_ = State::kHead;
  std::string open_;  // the brackets that close what is open
  std::string word_;  // of a name or of a value without marks
  bool is_name_ = false;
  bool escaped_ = false;
};

}  // namespace

std::unique_ptr<CallReader> NewGemmaCallReader(const ToolTypes& tools,
                                               const CallMarkup& markup) {
  return std::make_unique<GemmaCallReader>(tools, markup);
}

}  // namespace sluice
