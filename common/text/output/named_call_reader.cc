#include <algorithm>
#include <string>

#include "common/text/output/call_reader.h"
#include "common/text/output/json_arguments.h"

namespace sluice {
namespace {

// NAME and a separator, then JSON, perhaps in a block of Markdown, then the
// closing tag. Arguments that are missing are none.
class NamedCallReader : public CallReader {
 public:
  NamedCallReader(const ToolTypes& tools, const CallMarkup& markup)
      : tools_(tools), markup_(markup) {}

  void Begin(bool known_only) override {
    known_only_ = known_only;
    state_ = State::kHead;
  }

  Result Read(PendingText& input, EventWriter& out) override {
    if (state_ == State::kHead) {
      const Result head = ReadHead(input, out);
      if (head != Result::kDone) return head;
      state_ = markup_.is_fenced ? State::kFenceStart : State::kBefore;
    }
    if (state_ == State::kFenceStart && !ReadFence(input)) {
      if (input.stopped()) EndWithout(out);
      return input.ended() ? Result::kDone : Result::kMore;
    }
    if (state_ == State::kBefore && !ReadBefore(input, out)) {
      return input.ended() ? Result::kDone : Result::kMore;
    }
    if (state_ == State::kArguments) {
      if (!json_.Read(input, out)) {
        return input.ended() ? Result::kDone : Result::kMore;
      }
      state_ = State::kFenceEnd;
    }
    for (const std::string_view tag : {kFence, markup_.close}) {
      const bool is_fence = tag == kFence;
      if (is_fence && state_ != State::kFenceEnd) continue;
      if (tag.empty() || (is_fence && !markup_.is_fenced)) continue;
      if (input.ConsumeTag(tag) == Match::kMaybe) return Result::kMore;
      state_ = State::kTail;
    }
    return Result::kDone;
  }

 private:
  using Match = PendingText::Match;
  enum class State {
    kHead,
    kFenceStart,
    kBefore,
    kArguments,
    kFenceEnd,
    kTail
  };

  // The name's place and the end of the head, its separator included.
  struct Head {
    std::string_view name;
    size_t end = 0;
  };

  Result ReadHead(PendingText& input, EventWriter& out) {
    const std::string_view text = input.text();
    const size_t at = text.find(markup_.separator);
    // What may be the separator's beginning is no part of the head.
    const size_t size = at == text.npos ? text.size() - BegunAtEnd(text) : at;
    const std::string_view before = text.substr(0, size);
    // A head has no braces or quotes: other text is waited for no
    // longer.
    const bool is_head = before.size() <= kMaxCallHead &&
                         before.find_first_of("{}\"") == before.npos;
    if (!is_head) return Result::kNoCall;
    if (at == text.npos) return input.ended() ? Result::kNoCall : Result::kMore;
    Head head = {TrimBlanks(before), at + markup_.separator.size()};
    if (!markup_.type.empty()) {
      const Result typed = ReadTyped(input, head);
      if (typed != Result::kDone) return typed;
    }
    head.name = NameIn(head.name);
    const bool known = tools_.Has(head.name);
    if (!IsCallName(head.name) || (known_only_ && !known)) {
      return Result::kNoCall;
    }
    out.BeginCall(head.name);
    input.Consume(head.end);
    return Result::kDone;
  }

  // Returns the length of the separator's beginning at the end of `text`.
  size_t BegunAtEnd(std::string_view text) const {
    const std::string_view whole = markup_.separator;
    size_t size = std::min(text.size(), whole.size() - 1);
    while (size > 0 && !text.ends_with(whole.substr(0, size))) --size;
    return size;
  }

  // The name stands behind the separator, on a line of its own; a name before
  // it stays where no type stands there.
  Result ReadTyped(const PendingText& input, Head& head) const {
    if (head.name != markup_.type) return Result::kDone;
    const std::string_view text = input.text();
    const size_t end = text.find_first_of("\n`{", head.end);
    const size_t stop = std::min(end, text.size());
    if (stop - head.end > kMaxCallHead) return Result::kNoCall;
    if (end == text.npos && !input.ended()) return Result::kMore;
    head.name = TrimBlanks(text.substr(head.end, stop - head.end));
    head.end = stop;
    return Result::kDone;
  }

  std::string_view NameIn(std::string_view name) const {
    if (!markup_.id_tag.empty()) {
      name = TrimBlanks(name.substr(0, name.find(markup_.id_tag)));
    }
    if (name.starts_with(markup_.name_prefix)) {
      name.remove_prefix(markup_.name_prefix.size());
    }
    if (markup_.is_numbered) {
      const size_t colon = name.rfind(':');
      const bool is_number =
          colon != name.npos &&
          name.find_first_not_of("0123456789", colon + 1) == name.npos;
      if (is_number) name = name.substr(0, colon);
    }
    return name;
  }

  // Each returns false if it needs more text, or the output ended.

  bool ReadFence(PendingText& input) {
    input.ConsumeBlanks();
    if (input.text().empty()) return false;
    const Match json = input.Find(kJsonFence);
    if (json == Match::kMaybe) return false;
    if (json == Match::kYes) {
      input.Consume(kJsonFence.size());
    } else if (input.Find(kFence) == Match::kYes) {
      input.Consume(kFence.size());
    }
    state_ = State::kBefore;
    return true;
  }

  // Reads to the arguments.
  bool ReadBefore(PendingText& input, EventWriter& out) {
    input.ConsumeBlanks();
    if (input.text().empty()) {
      if (input.stopped()) EndWithout(out);
      return false;
    }
    if (input.text().front() != '{') {
      EndWithout(out);
      state_ = State::kFenceEnd;
      return true;
    }
    json_.Begin(input);
    state_ = State::kArguments;
    return true;
  }

  static void EndWithout(EventWriter& out) {
    out.Arguments("{}");
    out.EndCall();
  }

  const ToolTypes& tools_;
  const CallMarkup& markup_;
  JsonArguments json_;
  bool known_only_ = false;
  State state_ = State::kHead;
};

}  // namespace

std::unique_ptr<CallReader> NewNamedCallReader(const ToolTypes& tools,
                                               const CallMarkup& markup) {
  return std::make_unique<NamedCallReader>(tools, markup);
}

}  // namespace sluice
