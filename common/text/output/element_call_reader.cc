#include <algorithm>
#include <string>

#include "common/text/output/arguments_writer.h"
#include "common/text/output/call_reader.h"
#include "common/text/output/markup_tags.h"

namespace sluice {
namespace {

// A tag of the call's name, then an element for each parameter; objects and
// lists are elements within it. A mark, which is a token of its own, stands
// before every tag: text cannot spell one.
class ElementCallReader : public CallReader {
 public:
  ElementCallReader(const ToolTypes& tools, const CallMarkup& markup)
      : tools_(tools), tags_(markup), arguments_(tools) {}

  void Begin(bool known_only) override {
    known_only_ = known_only;
    state_ = State::kHead;
  }

  Result Read(PendingText& input, EventWriter& out) override {
    if (state_ == State::kHead) {
      const Result head =
          ReadCallTag(tags_.function, known_only_ ? &tools_ : nullptr, input,
                      arguments_, out);
      if (head != Result::kDone) return head;
      state_ = State::kBody;
    }
    while (true) {
      if (input.text().empty() && input.ended()) return AtEnd(out, input);
      if (input.text().empty()) return Result::kMore;
      Progress progress = Progress::kOn;
      switch (state_) {
        case State::kHead:
        case State::kBody:
          progress = ReadBody(input, out);
          break;
        case State::kKey:
          progress = ReadKey(input, out);
          break;
        case State::kValue:
          progress = ReadValue(input, out);
          break;
        case State::kClose:
          ReadClose(input);
          break;
        case State::kTail:
          return input.ConsumeTag(tags_.close) == Match::kMaybe ? Result::kMore
                                                                : Result::kDone;
      }
      if (progress == Progress::kWait) return Result::kMore;
    }
  }

 private:
  using Match = PendingText::Match;
  enum class State { kHead, kBody, kKey, kValue, kClose, kTail };
  enum class Progress { kOn, kWait };

  // Finds a tag that ends the call, or begins another one.
  Match FindEnd(const PendingText& input) const {
    return input.FindAny(
        {tags_.function_end, tags_.close, tags_.function, tags_.open});
  }

  // Returns whether more text could change one of them.
  static bool IsOpenYet(Match end, Match close, Match open) {
    return end == Match::kMaybe || close == Match::kMaybe ||
           open == Match::kMaybe;
  }

  // Reads between the parameters, and drops stray text and closing tags.
  Progress ReadBody(PendingText& input, EventWriter& out) {
    input.ConsumeBlanks();
    const Match end = FindEnd(input);
    if (end == Match::kYes) {
      if (input.Find(tags_.function_end) == Match::kYes) {
        input.Consume(tags_.function_end.size());
      }
      arguments_.EndCall(out);
      state_ = State::kTail;
      return Progress::kOn;
    }
    const Match close = input.Find(tags_.parameter_end);
    const Match open = input.Find(tags_.parameter);
    if (IsOpenYet(end, close, open)) return Progress::kWait;
    if (close == Match::kYes || open == Match::kNo) {
      const size_t size = close == Match::kYes ? tags_.parameter_end.size() : 1;
      input.Consume(std::min(size, input.text().size()));
      return Progress::kOn;
    }
    input.Consume(tags_.parameter.size());
    key_.clear();
    state_ = State::kKey;
    return Progress::kOn;
  }

  Progress ReadKey(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    const size_t size = std::min(text.find('>'), text.size());
    key_ += text.substr(0, std::min(size, kMaxParameterName - key_.size()));
    input.Consume(size);
    if (input.text().empty()) return Progress::kOn;
    input.Consume(1);
    arguments_.BeginValue(TrimBlanks(key_), out, ValueForm::kElements);
    depth_ = 0;
    state_ = State::kValue;
    return Progress::kOn;
  }

  Progress ReadValue(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    const size_t size = std::min(text.find(kMiniMaxMark.front()), text.size());
    arguments_.Value(text.substr(0, size), out);
    input.Consume(size);
    if (input.text().empty()) return Progress::kOn;
    const Match end = FindEnd(input);
    const Match close = input.Find(tags_.parameter_end);
    const Match open = input.Find(tags_.parameter);
    if (end != Match::kYes && IsOpenYet(end, close, open)) {
      return Progress::kWait;
    }
    if (end == Match::kYes || (close == Match::kYes && depth_ == 0)) {
      arguments_.EndValue(out);
      state_ = end == Match::kYes ? State::kBody : State::kClose;
      return Progress::kOn;
    }
    size_t taken = 1;
    // The mark is one token: a lone bracket at the end is text.
    if (input.text().size() >= kMiniMaxMark.size() &&
        input.EndsWithin(tags_.parameter_end, 0)) {
      input.Consume(input.text().size());
      return Progress::kOn;
    }
    if (close == Match::kYes) {
      --depth_;
      taken = tags_.parameter_end.size();
    } else if (open == Match::kYes) {
      ++depth_;
      taken = tags_.parameter.size();
    }
    taken = std::min(taken, input.text().size());
    arguments_.Value(input.text().substr(0, taken), out);
    input.Consume(taken);
    return Progress::kOn;
  }

  // Drops the tag that closes a value.
  void ReadClose(PendingText& input) {
    const size_t end = input.text().find('>');
    if (end != std::string_view::npos) state_ = State::kBody;
    input.Consume(std::min(end, input.text().size() - 1) + 1);
  }

  Result AtEnd(EventWriter& out, const PendingText& input) {
    if (state_ == State::kTail) return Result::kDone;
    if (input.cut_short()) {
      arguments_.Abandon();
      return Result::kDone;
    }
    if (state_ == State::kValue) arguments_.EndValue(out);
    arguments_.EndCall(out);
    return Result::kDone;
  }

  const ToolTypes& tools_;
  const CallMarkup& tags_;
  ArgumentsWriter arguments_;
  bool known_only_ = false;
  State state_ = State::kHead;
  std::string key_;
  size_t depth_ = 0;  // of elements within the value
};

}  // namespace

std::unique_ptr<CallReader> NewElementCallReader(const ToolTypes& tools,
                                                 const CallMarkup& markup) {
  return std::make_unique<ElementCallReader>(tools, markup);
}

}  // namespace sluice
