#include <algorithm>
#include <string>

#include "common/text/output/arguments_writer.h"
#include "common/text/output/call_reader.h"
#include "common/text/output/json_arguments.h"
#include "common/text/output/markup_tags.h"

namespace sluice {
namespace {

constexpr std::string_view kIsText = "string=\"true\"";

// The parameters, or JSON with all of them, stand between the tags of the name.
// As in the GLM format, a closing tag within a value counts only if the text
// behind it ends the value, and none within a string of JSON. Where the format
// has them, a line feed on either side of a value is markup.
class ParameterCallReader : public CallReader {
 public:
  ParameterCallReader(const ToolTypes& tools, const CallMarkup& markup)
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
      state_ = State::kFirst;
    }
    while (true) {
      if (state_ == State::kJson) {
        if (!json_.Read(input, out)) {
          return input.ended() ? Result::kDone : Result::kMore;
        }
        state_ = State::kEnd;
      }
      if (input.text().empty() && input.ended()) return AtEnd(input, out);
      if (input.text().empty()) return Result::kMore;
      Progress progress = Progress::kOn;
      switch (state_) {
        case State::kHead:
        case State::kFirst:
        case State::kJson:
          progress = ReadFirst(input);
          break;
        case State::kEnd:
          progress = ReadEnd(input);
          break;
        case State::kBody:
          progress = ReadBody(input, out);
          break;
        case State::kKey:
          progress = ReadKey(input, out);
          break;
        case State::kValueStart:
          if (tags_.has_line_feeds && input.text().front() == '\n') {
            input.Consume(1);
          }
          state_ = State::kValue;
          break;
        case State::kValue:
          progress = ReadValue(input, out);
          break;
        case State::kTail:
          progress = ReadTail(input);
          break;
      }
      if (progress == Progress::kWait) return Result::kMore;
      if (progress == Progress::kDone) return Result::kDone;
    }
  }

 private:
  using Match = PendingText::Match;
  enum class State {
    kHead,
    kFirst,  // behind the head
    kJson,
    kEnd,  // behind JSON
    kBody,
    kKey,
    kValueStart,
    kValue,
    kTail,
  };
  enum class Progress { kOn, kWait, kDone };

  Progress ReadFirst(PendingText& input) {
    input.ConsumeBlanks();
    if (input.text().empty()) return Progress::kOn;
    const bool is_json = input.text().front() == '{';
    if (is_json) json_.Begin(input);
    state_ = is_json ? State::kJson : State::kBody;
    return Progress::kOn;
  }

  Progress ReadEnd(PendingText& input) {
    if (input.ConsumeTag(tags_.function_end) == Match::kMaybe) {
      return Progress::kWait;
    }
    state_ = State::kTail;
    return Progress::kOn;
  }

  // Reads between the parameters, and drops stray text.
  Progress ReadBody(PendingText& input, EventWriter& out) {
    input.ConsumeBlanks();
    if (input.Find(tags_.parameter) == Match::kYes) {
      input.Consume(tags_.parameter.size());
      key_.clear();
      state_ = State::kKey;
      return Progress::kOn;
    }
    const Match end = input.FindAny(
        {tags_.function_end, tags_.function, tags_.open, tags_.close});
    if (end == Match::kYes) {
      if (input.Find(tags_.function_end) == Match::kYes) {
        input.Consume(tags_.function_end.size());
      }
      arguments_.EndCall(out);
      state_ = State::kTail;
    } else if (end == Match::kMaybe ||
               input.Find(tags_.parameter) == Match::kMaybe) {
      return Progress::kWait;
    } else {
      input.Consume(std::min<size_t>(1, input.text().size()));
    }
    return Progress::kOn;
  }

  Progress ReadKey(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    const size_t size = std::min(text.find('>'), text.size());
    key_ += text.substr(0, std::min(size, kMaxParameterName - key_.size()));
    input.Consume(size);
    if (input.text().empty()) return Progress::kOn;
    input.Consume(1);
    const bool is_text = tags_.tells_strings && key_.find(kIsText) != key_.npos;
    arguments_.BeginValue(UnquotedName(key_), out,
                          is_text ? ValueForm::kText : ValueForm::kBare);
    state_ = State::kValueStart;
    return Progress::kOn;
  }

  // Whether a value ends at a place, and the length of its closing tag.
  struct ValueEnd {
    Match match = Match::kNo;
    size_t tag = 0;
  };

  ValueEnd FindValueEnd(const PendingText& input, size_t at) const {
    const Match close = input.Find(tags_.parameter_end, at);
    if (close == Match::kYes) {
      const size_t tag = tags_.parameter_end.size();
      return {input.FindNext({tags_.parameter, tags_.function_end, tags_.close,
                              tags_.open, tags_.function},
                             at + tag),
              tag};
    }
    const Match function = input.Find(tags_.function_end, at);
    if (function == Match::kYes) {
      return {input.FindNext({tags_.close}, at + tags_.function_end.size()), 0};
    }
    return {std::max(close, function), 0};
  }

  Progress ReadValue(PendingText& input, EventWriter& out) {
    std::string_view text = input.text();
    const std::string_view ends = tags_.has_line_feeds ? "\n<" : "<";
    const size_t size = std::min(text.find_first_of(ends), text.size());
    arguments_.Value(text.substr(0, size), out);
    input.Consume(size);
    text = input.text();
    if (text.empty()) return Progress::kOn;
    if (text.front() == '<' && arguments_.in_json_string()) {
      arguments_.Value("<", out);
      input.Consume(1);
      return Progress::kOn;
    }
    const size_t at = text.front() == '\n' ? 1 : 0;
    if (at == text.size()) {
      if (!input.ended()) return Progress::kWait;
      input.Consume(1);  // the line feed before the closing tag
      return Progress::kOn;
    }
    const ValueEnd over = FindValueEnd(input, at);
    if (over.match == Match::kMaybe) return Progress::kWait;
    if (over.match == Match::kYes) {
      input.Consume(at + over.tag);
      arguments_.EndValue(out);
      state_ = State::kBody;
    } else if (input.EndsWithin(tags_.parameter_end, at)) {
      input.Consume(text.size());
    } else {
      arguments_.Value(text.substr(0, 1), out);
      input.Consume(1);
    }
    return Progress::kOn;
  }

  Progress ReadTail(PendingText& input) const {
    input.ConsumeBlanks();
    const Match close = input.Find(tags_.close);
    if (close == Match::kMaybe) return Progress::kWait;
    if (close == Match::kYes) {
      input.Consume(tags_.close.size());
    } else if (input.EndsWithin(tags_.close, 0)) {
      input.Consume(input.text().size());
    }
    return Progress::kDone;
  }

  Result AtEnd(const PendingText& input, EventWriter& out) {
    if (state_ == State::kEnd || state_ == State::kTail) return Result::kDone;
    if (input.cut_short()) {
      arguments_.Abandon();
      return Result::kDone;
    }
    if (state_ == State::kValue || state_ == State::kValueStart) {
      arguments_.EndValue(out);
    }
    arguments_.EndCall(out);
    return Result::kDone;
  }

  const ToolTypes& tools_;
  const CallMarkup& tags_;
  ArgumentsWriter arguments_;
  JsonArguments json_;
  bool known_only_ = false;
  State state_ = State::kHead;
  std::string key_;
};

}  // namespace

std::unique_ptr<CallReader> NewParameterCallReader(const ToolTypes& tools,
                                                   const CallMarkup& markup) {
  return std::make_unique<ParameterCallReader>(tools, markup);
}

}  // namespace sluice
