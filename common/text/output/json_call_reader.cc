#include <algorithm>
#include <optional>
#include <string>

#include "common/base/json.h"
#include "common/text/output/call_reader.h"
#include "common/text/output/json_arguments.h"
#include "common/text/output/json_scan.h"

namespace sluice {
namespace {

// The most bytes before the arguments, or of all if the arguments come before
// the name. Text that is no call is read again from its next opening on: this
// bounds the cost per byte of an output of openings.
constexpr size_t kMaxJsonHead = 4 << 10;

// Returns `json`, one value, with control characters in strings escaped.
std::string WithEscapes(std::string_view json) {
  JsonScan scan;
  std::string escaped;
  for (const char c : json) {
    if (scan.in_string() && static_cast<unsigned char>(c) < 0x20) {
      AppendJsonEscaped(std::string_view(&c, 1), escaped);
    } else {
      escaped += c;
    }
    scan.Next(c);
  }
  return escaped;
}

bool IsNameKey(std::string_view key) {
  return key == "name" || key == "function" || key == "tool_name";
}

bool IsArgumentsKey(std::string_view key) {
  return key == "arguments" || key == "parameters";
}

// Of keys beside the name and the arguments.
bool IsOtherKey(std::string_view key) {
  return key == "type" || key == "id" || key == "tool_call_id";
}

// Holds the head back until it names a function. An object is no call if it has
// other keys than a call's, or more than a word as the value of a key but the
// arguments. An arguments object is written as it comes, with control
// characters in strings escaped.
class JsonCallReader : public CallReader {
 public:
  // `list`: the markup of the list around the objects; null without one.
  JsonCallReader(const ToolTypes& tools, std::string_view close_tag,
                 const CallMarkup* list)
      : tools_(tools), close_tag_(close_tag), list_(list) {}

  void Begin(bool known_only) override {
    known_only_ = known_only;
    state_ = State::kOpen;
    at_ = 0;
    may_fence_ = list_ != nullptr && list_->is_fenced;
    had_bracket_ = list_ == nullptr;
    is_dropped_ = false;
    name_.reset();
    arguments_.reset();
  }

  Result Read(PendingText& input, EventWriter& out) override {
    while (state_ < State::kArguments) {
      const Result head = ReadHead(input, out);
      if (head != Result::kDone) return head;
    }
    if (state_ == State::kArguments) {
      const bool is_over = json_.Read(input, To(out));
      dropped_.Take();
      if (!is_over) return input.ended() ? Result::kDone : Result::kMore;
      state_ = State::kRest;
    }
    if (state_ == State::kRest && !ReadRest(input)) {
      return input.ended() ? Result::kDone : Result::kMore;
    }
    if (close_tag_.empty()) return Result::kDone;
    input.ConsumeBlanks();
    const auto close = input.Find(close_tag_);
    if (close == PendingText::Match::kMaybe) return Result::kMore;
    if (close == PendingText::Match::kYes) {
      input.Consume(close_tag_.size());
    } else if (input.EndsWithin(close_tag_, 0)) {
      input.Consume(input.text().size());
    }
    return Result::kDone;
  }

 private:
  // In the head `at_` is the end of the read text; nothing is consumed.
  enum class State {
    kOpen,
    kKeyOrEnd,
    kKey,
    kColon,
    kBeforeValue,
    kValue,
    kComma,
    kArguments,
    kRest,  // keys behind the arguments
    kTail,
  };

  // Reads one byte of the head; kDone: continue.
  Result ReadHead(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    if (at_ == text.size()) {
      return input.ended() ? Result::kNoCall : Result::kMore;
    }
    if (at_ >= kMaxJsonHead) return Result::kNoCall;
    const char c = text[at_];
    const bool reading = state_ == State::kKey || state_ == State::kValue;
    if (!reading && IsBlank(c)) {
      ++at_;
      return Result::kDone;
    }
    switch (state_) {
      case State::kOpen:
        if (c == '`' && may_fence_ && !had_bracket_) return SkipFence(input);
        if (c == '[' && !had_bracket_) {
          had_bracket_ = true;
          ++at_;
          return Result::kDone;
        }
        return Expect(c == '{', State::kKeyOrEnd);
      case State::kColon:
        return Expect(c == ':', State::kBeforeValue);
      case State::kKeyOrEnd:
        if (c == '}' && !had_comma_) return EndHead(input, out);
        if (c != '"') return Result::kNoCall;
        StartScan(State::kKey);
        return Result::kDone;
      case State::kBeforeValue:
        if (c == ',' || c == '}' || c == ']' || c == ':') {
          return Result::kNoCall;
        }
        if (IsArgumentsKey(key_) && name_) return BeginArguments(input, out);
        if (!IsArgumentsKey(key_) && (c == '{' || c == '[')) {
          return Result::kNoCall;
        }
        StartScan(State::kValue);
        return Result::kDone;
      case State::kComma:
        if (c == '}') return EndHead(input, out);
        had_comma_ = true;
        return Expect(c == ',', State::kKeyOrEnd);
      default:
        return ReadToken(text);
    }
  }

  Result SkipFence(const PendingText& input) {
    const auto json = input.Find(kJsonFence, at_);
    if (json == PendingText::Match::kMaybe) return Result::kMore;
    const bool is_json = json == PendingText::Match::kYes;
    if (!is_json && input.Find(kFence, at_) != PendingText::Match::kYes) {
      return Result::kNoCall;
    }
    at_ += is_json ? kJsonFence.size() : kFence.size();
    may_fence_ = false;
    return Result::kDone;
  }

  Result Expect(bool as_expected, State next) {
    if (state_ == State::kOpen) had_comma_ = false;
    state_ = next;
    ++at_;
    return as_expected ? Result::kDone : Result::kNoCall;
  }

  void StartScan(State state) {
    state_ = state;
    token_ = at_;
    scan_ = JsonScan();
  }

  // Reads a byte of a key or of a value.
  Result ReadToken(std::string_view text) {
    const bool is_word = state_ == State::kKey || !IsArgumentsKey(key_);
    if (is_word && at_ - token_ >= kMaxCallHead) return Result::kNoCall;
    const auto step = scan_.Next(text[at_]);
    if (step != JsonScan::Step::kBehind) ++at_;
    if (step == JsonScan::Step::kWithin) return Result::kDone;
    const std::string_view token = text.substr(token_, at_ - token_);
    if (state_ == State::kKey) {
      key_ = token.substr(1, token.size() - 2);
      state_ = State::kColon;
      if (IsNamingKey()) return NameByKey(token);
      const bool known =
          IsArgumentsKey(key_) || IsNameKey(key_) || IsOtherKey(key_);
      return known ? Result::kDone : Result::kNoCall;
    }
    state_ = State::kComma;
    if (IsArgumentsKey(key_)) arguments_ = WithEscapes(token);
    if (!IsNameKey(key_)) return Result::kDone;
    const auto value = ParseJson(token);
    if (!value.ok() || !value->is_string()) return Result::kNoCall;
    name_ = value->get<std::string>();
    return IsName(*name_) ? Result::kDone : Result::kNoCall;
  }

  // Returns whether the key is the call's name, its value the arguments.
  bool IsNamingKey() const {
    if (list_ == nullptr || !list_->has_name_keys || name_) return false;
    const bool is_usual =
        IsNameKey(key_) || IsArgumentsKey(key_) || IsOtherKey(key_);
    return tools_.Has(key_) || !is_usual;
  }

  // `token`: the key with its quotes.
  Result NameByKey(std::string_view token) {
    const auto name = ParseJson(token);
    if (!name.ok()) return Result::kNoCall;
    name_ = name->get<std::string>();
    key_ = "arguments";
    return IsName(*name_) ? Result::kDone : Result::kNoCall;
  }

  bool IsName(const std::string& name) const {
    if (known_only_) return tools_.Has(name);
    return !name.empty() && name.size() <= kMaxCallHead;
  }

  // Returns whether the name says that the model calls nothing.
  bool MeansNoCall() const {
    if (list_ == nullptr || tools_.Has(*name_)) return false;
    const auto& names = list_->no_calls;
    return std::find(names.begin(), names.end(), *name_) != names.end();
  }

  EventWriter& To(EventWriter& out) { return is_dropped_ ? dropped_ : out; }

  Result BeginArguments(PendingText& input, EventWriter& out) {
    is_dropped_ = MeansNoCall();
    To(out).BeginCall(*name_);
    input.Consume(at_);
    json_.Begin(input);
    state_ = State::kArguments;
    return Result::kDone;
  }

  // Ends the object; the arguments, if any, came before the name.
  Result EndHead(PendingText& input, EventWriter& out) {
    if (!name_) return Result::kNoCall;
    is_dropped_ = MeansNoCall();
    if (!is_dropped_) {
      out.BeginCall(*name_);
      out.Arguments(arguments_ ? JsonArguments::AsObject(*arguments_) : "{}");
      out.EndCall();
    }
    input.Consume(at_ + 1);
    state_ = State::kTail;
    return Result::kDone;
  }

  // Drops the rest of the object. False: needs more text.
  bool ReadRest(PendingText& input) {
    while (true) {
      if (!rest_key_) input.ConsumeBlanks();
      const std::string_view text = input.text();
      if (text.empty()) return false;
      const char c = text.front();
      if (!rest_key_ && c != ',' && c != '}') break;  // the end is missing
      if (!rest_key_) {
        rest_scan_ = JsonScan();
        rest_scan_.Next('{');
        rest_key_ = true;
      }
      const auto step = rest_scan_.Next(c);
      input.Consume(1);
      if (step == JsonScan::Step::kLast) break;
    }
    rest_key_ = false;
    state_ = State::kTail;
    return true;
  }

  const ToolTypes& tools_;
  const std::string close_tag_;
  const CallMarkup* const list_;  // around the objects; null: none
  bool may_fence_ = false;        // a block of Markdown may begin
  bool had_bracket_ = false;
  bool is_dropped_ = false;  // the object stands for no call
  EventWriter dropped_;      // for what is not written
  bool known_only_ = false;
  State state_ = State::kOpen;
  size_t at_ = 0;
  size_t token_ = 0;  // start of the key or value
  bool had_comma_ = false;
  std::string key_;
  std::optional<std::string> name_;
  std::optional<std::string> arguments_;  // that came before the name
  JsonScan scan_;                         // of a key or a value of the head
  JsonArguments json_;
  bool rest_key_ = false;  // within what follows the arguments
  JsonScan rest_scan_;
};

}  // namespace

std::unique_ptr<CallReader> NewJsonCallReader(const ToolTypes& tools,
                                              std::string_view close_tag) {
  return std::make_unique<JsonCallReader>(tools, close_tag, nullptr);
}

std::unique_ptr<CallReader> NewListedJsonReader(const ToolTypes& tools,
                                                const CallMarkup& markup) {
  return std::make_unique<JsonCallReader>(tools, "", &markup);
}

}  // namespace sluice
