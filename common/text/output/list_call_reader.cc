#include <algorithm>

#include "common/text/output/call_reader.h"

namespace sluice {
namespace {

// A list whose first element is no call is none. What follows an element that
// is no call is not read.
class ListCallReader : public CallReader {
 public:
  ListCallReader(const ToolTypes& tools, const CallMarkup& markup)
      : markup_(markup), json_(NewListedJsonReader(tools, markup)) {
    if (markup.shape == CallShape::kPythonList) {
      python_ = NewPythonCallReader(tools, markup);
    }
  }

  void Begin(bool known_only) override {
    known_only_ = known_only;
    state_ = State::kFirst;
    element_ = nullptr;
  }

  Result Read(PendingText& input, EventWriter& out) override {
    while (true) {
      switch (state_) {
        case State::kFirst:
        case State::kNext: {
          const Result element = ReadElement(input, out);
          if (element != Result::kDone) return element;
          if (input.cut_short() && input.text().empty()) return Result::kDone;
          state_ = State::kBetween;
          break;
        }
        case State::kBetween: {
          input.ConsumeBlanks();
          if (input.text().empty()) {
            return input.ended() ? Result::kDone : Result::kMore;
          }
          const char c = input.text().front();
          if (c == ',' || c == ']') input.Consume(1);
          // Without a bracket each object may have a line.
          const bool follows = c == ',' || (c == '{' && was_call_);
          state_ = follows ? State::kNext : State::kTail;
          element_ = nullptr;
          break;
        }
        case State::kTail: {
          if (markup_.close.empty()) return Result::kDone;
          const auto close = input.ConsumeTag(markup_.close);
          return close == PendingText::Match::kMaybe ? Result::kMore
                                                     : Result::kDone;
        }
      }
    }
  }

 private:
  enum class State { kFirst, kNext, kBetween, kTail };

  Result ReadElement(PendingText& input, EventWriter& out) {
    if (element_ == nullptr) {
      const std::string_view text = input.text();
      const size_t at =
          std::min(text.find_first_not_of(state_ == State::kFirst ? " \t\r\n["
                                                                  : " \t\r\n"),
                   text.size());
      const bool is_far = at > kMaxCallHead;
      if (at == text.size() && !is_far && !input.ended()) return Result::kMore;
      const bool is_json = is_far || at == text.size() || text[at] == '{';
      element_ = is_json || python_ == nullptr ? json_.get() : python_.get();
      element_->Begin(known_only_);
    }
    const Result result = element_->Read(input, out);
    was_call_ = result != Result::kNoCall;
    // Behind a call what is no call ends the list.
    return !was_call_ && state_ == State::kNext ? Result::kDone : result;
  }

  const CallMarkup& markup_;
  const std::unique_ptr<CallReader> json_;
  std::unique_ptr<CallReader> python_;  // null: none
  bool known_only_ = false;
  State state_ = State::kFirst;
  CallReader* element_ = nullptr;  // null: not chosen yet
  bool was_call_ = false;          // the last element
};

}  // namespace

std::unique_ptr<CallReader> NewListCallReader(const ToolTypes& tools,
                                              const CallMarkup& markup) {
  return std::make_unique<ListCallReader>(tools, markup);
}

}  // namespace sluice
