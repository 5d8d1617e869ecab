#include <algorithm>
#include <string>

#include "common/text/output/arguments_writer.h"
#include "common/text/output/call_reader.h"
#include "common/text/output/markup_tags.h"

namespace sluice {
namespace {

// A closing tag within a value counts only if the text behind it ends the
// value: a value may spell the tag. Within a string of a JSON value no tag
// counts. Adds a missing </tool_call>, and a missing
// </arg_value> before </tool_call> at the end.
class GlmCallReader : public CallReader {
 public:
  explicit GlmCallReader(const ToolTypes& tools)
      : tools_(tools), arguments_(tools) {}

  void Begin(bool known_only) override {
    known_only_ = known_only;
    state_ = State::kHead;
  }

  Result Read(PendingText& input, EventWriter& out) override {
    if (state_ == State::kHead) {
      const Result head = ReadHead(input, out);
      if (head != Result::kDone) return head;
    }
    while (true) {
      if (input.text().empty()) {
        return input.ended() ? AtEnd(input, out) : Result::kMore;
      }
      Progress progress = Progress::kOn;
      if (state_ == State::kBody) progress = ReadBody(input, out);
      if (state_ == State::kKey) progress = ReadKey(input);
      if (state_ == State::kBeforeValue) progress = ReadBefore(input, out);
      if (state_ == State::kValue) progress = ReadValue(input, out);
      if (progress == Progress::kWait) return Result::kMore;
      if (progress == Progress::kDone) return Result::kDone;
    }
  }

 private:
  using Match = PendingText::Match;
  enum class State { kHead, kBody, kKey, kBeforeValue, kValue };
  enum class Progress { kOn, kWait, kDone };

  // kDone: the call has begun.
  Result ReadHead(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    size_t begin = 0;
    while (begin < text.size() && IsBlank(text[begin])) ++begin;
    size_t end = begin;
    while (end < text.size() && IsCallName(text.substr(end, 1))) ++end;
    if (end > kMaxCallHead) return Result::kNoCall;
    if (end == text.size() && !input.ended()) return Result::kMore;
    const std::string_view name = text.substr(begin, end - begin);
    const bool known = tools_.Has(name);
    if (name.empty() || (known_only_ && !known)) return Result::kNoCall;
    // At the end of the output only a name of the request makes a call.
    if (input.cut_short() && end == text.size()) return Result::kNoCall;
    const Match next = known ? input.FindNext({kArgKey, kToolCallEnd}, end)
                             : FindWhole(input, end);
    if (next == Match::kMaybe) return Result::kMore;
    if (next == Match::kNo) return Result::kNoCall;
    arguments_.BeginCall(name, out);
    input.Consume(end);
    state_ = State::kBody;
    return Result::kDone;
  }

  // An unknown function's name needs whole text behind it.
  static Match FindWhole(const PendingText& input, size_t at) {
    const std::string_view rest = TrimBlanks(input.text().substr(at));
    const Match next = input.FindNext({kArgKey, kToolCallEnd}, at);
    const bool whole =
        rest.starts_with(kArgKey) || rest.starts_with(kToolCallEnd);
    return next == Match::kYes && !whole ? Match::kNo : next;
  }

  // Reads between the parameters, and drops stray text.
  Progress ReadBody(PendingText& input, EventWriter& out) {
    input.ConsumeBlanks();
    if (input.Find(kArgKey) == Match::kYes) {
      input.Consume(kArgKey.size());
      key_.clear();
      state_ = State::kKey;
    } else if (input.FindAny({kToolCall, kToolCallEnd}) == Match::kYes) {
      if (input.Find(kToolCallEnd) == Match::kYes)
        input.Consume(kToolCallEnd.size());
      arguments_.EndCall(out);
      return Progress::kDone;
    } else if (input.FindAny({kArgKey, kToolCall, kToolCallEnd}) ==
               Match::kMaybe) {
      return Progress::kWait;
    } else {
      input.Consume(std::min<size_t>(1, input.text().size()));
    }
    return Progress::kOn;
  }

  Progress ReadKey(PendingText& input) {
    const std::string_view text = input.text();
    const size_t size = std::min(text.find('<'), text.size());
    key_ += text.substr(0, std::min(size, kMaxParameterName - key_.size()));
    input.Consume(size);
    if (input.text().empty()) return Progress::kOn;
    const Match match = input.FindAny({kArgKeyEnd, kArgValue, kToolCallEnd});
    if (match == Match::kMaybe) return Progress::kWait;
    if (match == Match::kNo) {
      if (key_.size() < kMaxParameterName) key_ += '<';
      input.Consume(1);
      return Progress::kOn;
    }
    if (input.Find(kArgKeyEnd) == Match::kYes) input.Consume(kArgKeyEnd.size());
    state_ = State::kBeforeValue;
    return Progress::kOn;
  }

  // A key without a value is dropped.
  Progress ReadBefore(PendingText& input, EventWriter& out) {
    input.ConsumeBlanks();
    if (input.Find(kArgValue) == Match::kYes) {
      input.Consume(kArgValue.size());
      arguments_.BeginValue(TrimBlanks(key_), out);
      state_ = State::kValue;
      return Progress::kOn;
    }
    const Match other = input.FindAny({kArgKey, kToolCall, kToolCallEnd});
    if (other == Match::kYes) {
      state_ = State::kBody;
      return ReadBody(input, out);
    }
    if (other == Match::kMaybe || input.Find(kArgValue) == Match::kMaybe) {
      return Progress::kWait;
    }
    input.Consume(std::min<size_t>(1, input.text().size()));
    return Progress::kOn;
  }

  Progress ReadValue(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    const size_t size = std::min(text.find('<'), text.size());
    arguments_.Value(text.substr(0, size), out);
    input.Consume(size);
    if (input.text().empty()) return Progress::kOn;
    if (arguments_.in_json_string()) {
      arguments_.Value("<", out);
      input.Consume(1);
      return Progress::kOn;
    }
    const Match close = input.Find(kArgValueEnd);
    const Match end = input.Find(kToolCallEnd);
    Match over = std::max(close, end);
    if (close == Match::kYes) {
      over = input.FindNext({kArgKey, kToolCallEnd, kToolCall},
                            kArgValueEnd.size());
    } else if (end == Match::kYes) {
      over = input.FindNext({kToolCall}, kToolCallEnd.size());
    }
    if (over == Match::kMaybe) return Progress::kWait;
    if (over == Match::kYes) {
      if (close == Match::kYes) input.Consume(kArgValueEnd.size());
      arguments_.EndValue(out);
      state_ = State::kBody;
    } else if (input.EndsWithin(kArgValueEnd, 0)) {
      input.Consume(input.text().size());
    } else {
      arguments_.Value("<", out);
      input.Consume(1);
    }
    return Progress::kOn;
  }

  Result AtEnd(const PendingText& input, EventWriter& out) {
    if (input.stopped()) {
      if (state_ == State::kValue) arguments_.EndValue(out);
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
};

}  // namespace

std::unique_ptr<CallReader> NewGlmCallReader(const ToolTypes& tools) {
  return std::make_unique<GlmCallReader>(tools);
}

}  // namespace sluice
