#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/text/output/call_reader.h"
#include "common/text/utf8.h"

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
    has_items_.clear();
    word_.clear();
  }

  Result Read(PendingText& input, EventWriter& out) override {
    if (state_ == State::kHead) {
      const Result head = ReadHead(input, out);
      if (head != Result::kDone) return head;
      Open('{', out);
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
    const bool at_start = TrimBlanks(word_).empty();
    if (mark == Match::kYes && at_start) {
      input.Consume(kGemmaQuote.size());
      BeginText(State::kMarked, out);
      return true;
    }
    input.Consume(1);
    if (c == '"' && at_start) {
      BeginText(State::kQuoted, out);
    } else if (c == ':' && state_ == State::kName) {
      EndName(out);
    } else if (c == ',' || c == '}' || c == ']') {
      EndPart(c, out);
    } else if (state_ == State::kValue && (c == '{' || c == '[') &&
               open_.size() < kMaxBrackets && at_start && !is_done_) {
      BeginItem(out);
      Open(c, out);
    } else if (word_.size() < kMaxHeldBytes) {
      word_ += c;
    }
    return true;
  }

  // A text behind a whole name or value is read and not written.
  void BeginText(State kind, EventWriter& out) {
    is_shown_ = !is_done_;
    if (is_shown_) {
      BeginItem(out);
      out.Arguments("\"");
    }
    word_.clear();
    is_name_ = state_ == State::kName;
    escaped_ = false;
    state_ = kind;
  }

  void EndText(EventWriter& out) {
    if (is_shown_) out.Arguments("\"");
    is_done_ = true;
    state_ = is_name_ ? State::kName : State::kValue;
  }

  void WriteText(std::string_view text, EventWriter& out) const {
    if (is_shown_) out.Arguments(text);
  }

  void ReadMarked(Match mark, PendingText& input, EventWriter& out) {
    if (mark == Match::kYes) {
      input.Consume(kGemmaQuote.size());
      EndText(out);
      return;
    }
    const std::string_view text = input.text();
    const size_t size = std::min(text.find('<', 1), text.size());
    std::string escaped;
    AppendJsonEscaped(text.substr(0, size), escaped);
    WriteText(escaped, out);
    input.Consume(size);
  }

  // A backslash is written with the byte behind it.
  void ReadQuoted(char c, PendingText& input, EventWriter& out) {
    input.Consume(1);
    if (!escaped_ && c == '"') {
      EndText(out);
      return;
    }
    if (!escaped_ && c == '\\') {
      escaped_ = true;
      return;
    }
    constexpr std::string_view kEscapes = "\"\\/bfnrtu";
    const bool is_escape = escaped_ && kEscapes.find(c) != kEscapes.npos;
    std::string piece = is_escape ? "\\" : escaped_ ? "\\\\" : "";
    escaped_ = false;
    if (is_escape) {
      piece += c;
    } else {
      AppendJsonEscaped(std::string_view(&c, 1), piece);
    }
    WriteText(piece, out);
  }

  static void WriteString(std::string_view text, EventWriter& out) {
    std::string quoted = "\"";
    AppendJsonEscaped(Utf8Lossy(text), quoted);  // it may have been cut
    out.Arguments(quoted + "\"");
  }

  // A word is JSON or one of Python's words, else a string.
  static void WriteWord(std::string_view word, EventWriter& out) {
    constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (const auto& [python, json] : kWords) {
      if (word == python) word = json;
    }
    if (ParseJson(word).ok()) {
      out.Arguments(word);
    } else {
      WriteString(word, out);
    }
  }

  // Begins a name, or a value of a list.
  void BeginItem(EventWriter& out) {
    if (state_ != State::kName && open_.back() != ']') return;
    if (has_items_.back()) out.Arguments(", ");
    has_items_.back() = true;
  }

  void Open(char c, EventWriter& out) {
    out.Arguments(std::string(1, c));
    open_ += c == '{' ? '}' : ']';
    has_items_.push_back(false);
    state_ = c == '{' ? State::kName : State::kValue;
    is_done_ = false;
  }

  void EndName(EventWriter& out) {
    if (!is_done_) {
      BeginItem(out);
      WriteString(TrimBlanks(word_), out);
    }
    word_.clear();
    out.Arguments(": ");
    state_ = State::kValue;
    is_done_ = false;
  }

  // A name without a value has null.
  void EndItem(EventWriter& out) {
    const std::string_view word = TrimBlanks(word_);
    if (state_ == State::kName) {
      if (!is_done_ && word.empty()) return;
      EndName(out);
    }
    if (is_done_) {
      word_.clear();
      return;
    }
    const std::string value(TrimBlanks(word_));
    word_.clear();
    if (!value.empty()) {
      BeginItem(out);
      WriteWord(value, out);
    } else if (open_.back() == '}') {
      out.Arguments("null");
    }
  }

  // Ends a value with a comma, or with a bracket that ends what is open.
  void EndPart(char c, EventWriter& out) {
    EndItem(out);
    if (c == ',') {
      state_ = open_.back() == '}' ? State::kName : State::kValue;
      is_done_ = false;
      return;
    }
    out.Arguments(std::string(1, open_.back()));
    open_.pop_back();
    has_items_.pop_back();
    state_ = State::kValue;
    is_done_ = true;
    if (!open_.empty()) return;
    out.EndCall();
    state_ = State::kTail;
  }

  Result AtEnd(PendingText& input, EventWriter& out) {
    if (input.stopped()) {
      if (state_ == State::kMarked || state_ == State::kQuoted) EndText(out);
      if (state_ == State::kName && !is_done_) word_.clear();
      EndItem(out);
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
  std::string open_;             // the brackets that close what is open
  std::vector<bool> has_items_;  // of each of them
  std::string word_;             // of a name or of a value without marks
  bool is_done_ = false;         // the name, or the value, is written
  bool is_name_ = false;         // the text is a name
  bool is_shown_ = false;        // the text is written
  bool escaped_ = false;
};

}  // namespace

std::unique_ptr<CallReader> NewGemmaCallReader(const ToolTypes& tools,
                                               const CallMarkup& markup) {
  return std::make_unique<GemmaCallReader>(tools, markup);
}

}  // namespace sluice
