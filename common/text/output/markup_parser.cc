#include <algorithm>
#include <utility>

#include "common/text/output/call_reader.h"
#include "common/text/output/markup_tags.h"
#include "common/text/output/parsers.h"

namespace sluice {
namespace {

// A place where a call may begin.
struct Opening {
  std::string_view tag;
  bool is_head = false;  // the tag belongs to what the reader reads
};

// Reasoning, content and calls whose markup is text. Rules beyond the tags:
// The tags are those of the formats; <think> stands for the one of reasoning.
// - <think> counts only where content has not begun (again, behind a call);
//   there </think> alone is the end of an empty reasoning.
// - A call within reasoning must name a function of the request; the reasoning
//   goes on behind it. Without calls_in_reasoning there is none.
// - White space around reasoning and calls is not shown.
class MarkupParser : public OutputParser {
 public:
  MarkupParser(const OutputFormat& format, const OutputRequest& request,
               std::shared_ptr<const ToolTypes> tools)
      : tools_(std::move(tools)),
        tags_(TagsOf(format.reasoning)),
        thinks_(!tags_.open.empty()),
        calls_in_reasoning_(request.calls_in_reasoning),
        calls_or_content_(request.calls_or_content),
        bare_json_(format.tools == ToolFormat::kLlamaJson && !tools_->empty()),
        content_(/*trim_start=*/thinks_ && !request.in_content) {
    mode_ = thinks_ ? Mode::kStart : Mode::kContent;
    if (request.in_content) {
      mode_ = Mode::kContent;
      place_ = Place::kWithin;
    }
    if (thinks_ && request.in_reasoning) mode_ = Mode::kReasoning;
    for (const std::string_view tag : tags_.around_content) {
      if (!tag.empty()) dropped_.push_back(tag);
    }
    AddCalls(format.tools);
    AddStart(tags_.open);
    AddStart(tags_.close);
    for (const std::string_view tag : dropped_) AddStart(tag);
    for (const Opening& opening : openings_) AddStart(opening.tag);
  }

  OutputEvents Feed(TokenId, std::string_view text) override {
    if (text.empty()) return {};
    input_.Append(text);
    Run();
    return out_.Take();
  }

  OutputEvents Finish(OutputEnd end) override {
    input_.End(end);
    Run();
    const bool is_over =
        out_.calls() > 0 || behind_call_ || place_ == Place::kBehind;
    if (!is_over) out_.Content(content_.TakeHeld());
    return out_.Take();
  }

 private:
  using Match = PendingText::Match;
  enum class Mode { kStart, kReasoning, kContent, kCall };
  enum class Place { kBefore, kWithin, kBehind };  // of marks around content

  void AddCalls(ToolFormat format) {
    if (tools_->empty() || format == ToolFormat::kNone) return;
    const CallMarkup& markup = MarkupOf(format);
    openings_ = {{markup.open, false}};
    if (!markup.section.empty()) section_.push_back(markup.section);
    if (!markup.section_end.empty()) ends_.push_back(markup.section_end);
    switch (markup.shape) {
      case CallShape::kBareJson:
        reader_ = NewJsonCallReader(*tools_, "");
        break;
      case CallShape::kJsonList:
      case CallShape::kPythonList:
        reader_ = format == ToolFormat::kMistralList
                      ? NewMistralCallReader(*tools_)
                      : NewListCallReader(*tools_, markup);
        break;
      case CallShape::kNamed:
        reader_ = format == ToolFormat::kMistral
                      ? NewMistralCallReader(*tools_)
                      : NewNamedCallReader(*tools_, markup);
        break;
      case CallShape::kParameters:
      case CallShape::kElements:
        reader_ = markup.shape == CallShape::kElements
                      ? NewElementCallReader(*tools_, markup)
                      : NewParameterCallReader(*tools_, markup);
        // Several calls stand between one pair of tags.
        openings_.push_back({markup.function, true});
        ends_.push_back(markup.close);
        break;
      case CallShape::kGemma:
        reader_ = NewGemmaCallReader(*tools_, markup);
        break;
      default:
        reader_ = NewTaggedCallReader(*tools_);
        break;
    }
    if (format == ToolFormat::kQwenCoder) {
      openings_.push_back({kFunction, true});
    }
    for (const std::string_view tag : section_) AddStart(tag);
    for (const std::string_view tag : ends_) AddStart(tag);
  }

  // A text that may begin a tag.
  void AddStart(std::string_view tag) {
    if (!tag.empty() && starts_.find(tag.front()) == starts_.npos) {
      starts_ += tag.front();
    }
  }

  void Run() {
    bool goes_on = true;
    while (goes_on) {
      switch (mode_) {
        case Mode::kStart:
          goes_on = ReadStart();
          break;
        case Mode::kReasoning:
        case Mode::kContent:
          goes_on = bare_json_ && at_start_ && mode_ == Mode::kContent
                        ? ReadJsonStart()
                        : ReadText();
          break;
        case Mode::kCall:
          goes_on = ReadCall();
          break;
      }
    }
  }

  void Write(std::string_view text) {
    behind_call_ = behind_call_ && IsBlank(text);
    if (mode_ == Mode::kReasoning) {
      out_.Reasoning(reasoning_.Push(text));
      return;
    }
    has_content_ = has_content_ || !IsBlank(text);
    out_.Content(content_.Push(text));
    // Without a possible call or mark, holding back would only delay.
    const bool may_end = tags_.has_text_marks && place_ != Place::kBefore;
    if (openings_.empty() && !may_end) out_.Content(content_.TakeHeld());
  }

  void WriteAndConsume(size_t size) {
    Write(input_.text().substr(0, size));
    input_.Consume(size);
  }

  size_t CountBlanks() const {
    const std::string_view text = input_.text();
    size_t size = 0;
    while (size < text.size() && IsBlank(text[size])) ++size;
    return size;
  }

  // Each returns false if it needs more text.

  bool ReadStart() {
    WriteAndConsume(CountBlanks());
    if (input_.text().empty()) return false;
    if (input_.Find(tags_.open) == Match::kYes) {
      input_.Consume(tags_.open.size());
      mode_ = Mode::kReasoning;
    } else if (input_.Find(tags_.close) == Match::kYes) {
      input_.Consume(tags_.close.size());
    } else if (input_.FindAny({tags_.open, tags_.close}) == Match::kMaybe) {
      return false;
    } else {
      mode_ = Mode::kContent;
    }
    return true;
  }

  bool MayCall() const {
    return !openings_.empty() && !(calls_or_content_ && has_content_);
  }

  bool ReadText() {
    if (mode_ == Mode::kContent && !MayCall() && dropped_.empty()) {
      WriteAndConsume(input_.text().size());
      return false;
    }
    const std::string_view text = input_.text();
    WriteAndConsume(std::min(text.find_first_of(starts_), text.size()));
    if (input_.text().empty()) return false;
    if (mode_ == Mode::kContent && !MayCall() && dropped_.empty()) return true;
    Match best = Match::kNo;
    if (mode_ == Mode::kReasoning) {
      best = input_.Find(tags_.close);
      if (best == Match::kYes) return EndReasoning();
      if (!reasoning_.began()) {
        const Match again = input_.Find(tags_.open);
        if (again == Match::kYes) input_.Consume(tags_.open.size());
        if (again == Match::kYes) return true;
        best = std::max(best, again);
      }
    }
    if (mode_ == Mode::kContent) {
      const Match dropped =
          tags_.has_text_marks ? DropTextMark() : Drop(dropped_);
      if (dropped == Match::kYes) return true;
      best = std::max(best, dropped);
    }
    if (mode_ == Mode::kReasoning ? calls_in_reasoning_ : MayCall()) {
      Match dropped = Drop(section_);
      if (dropped != Match::kYes && out_.calls() > 0) {
        dropped = std::max(dropped, Drop(ends_));
      }
      if (dropped == Match::kYes) return true;
      best = std::max(best, dropped);
      for (const Opening& opening : openings_) {
        const Match match = input_.Find(opening.tag);
        if (match == Match::kYes) return BeginCall(opening);
        best = std::max(best, match);
      }
    }
    if (best == Match::kMaybe) return false;
    WriteAndConsume(1);
    return true;
  }

  // Consumes any of `tags`.
  Match Drop(const std::vector<std::string_view>& tags) {
    Match best = Match::kNo;
    for (const std::string_view tag : tags) {
      const Match match = input_.Find(tag);
      if (match == Match::kYes) {
        input_.Consume(tag.size());
        return match;
      }
      best = std::max(best, match);
    }
    return best;
  }

  // Consumes the mark before the content, or the mark behind it, which a call
  // or nothing follows.
  Match DropTextMark() {
    const auto& [open, close] = tags_.around_content;
    if (place_ == Place::kBefore && !has_content_) {
      const Match match = input_.Find(open);
      if (match != Match::kYes) return match;
      input_.Consume(open.size());
      place_ = Place::kWithin;
      return match;
    }
    if (place_ != Place::kWithin) return Match::kNo;
    const Match match = input_.Find(close);
    if (match != Match::kYes) return match;
    const std::string_view next =
        openings_.empty() ? tags_.open : openings_.front().tag;
    const Match end = input_.FindNext({next}, close.size());
    if (end != Match::kYes) return end;
    input_.Consume(close.size());
    content_.TakeHeld();
    place_ = Place::kBehind;
    return end;
  }

  bool EndReasoning() {
    input_.Consume(tags_.close.size());
    reasoning_.TakeHeld();
    mode_ = Mode::kStart;
    return true;
  }

  // A call without a tag may begin at the start, and behind a call with a
  // semicolon or comma between.
  bool ReadJsonStart() {
    WriteAndConsume(CountBlanks());
    if (input_.text().empty()) return false;
    const char c = input_.text().front();
    if (c == '{') return BeginCall({"{", true});
    if (behind_call_ && (c == ';' || c == ',')) {
      input_.Consume(1);
      behind_call_ = false;
      return true;
    }
    const Match tag = input_.Find(kPythonTag);
    if (tag == Match::kMaybe) return false;
    if (tag == Match::kYes) return BeginCall(openings_.front());
    at_start_ = false;
    return true;
  }

  bool BeginCall(const Opening& opening) {
    if (!opening.is_head) input_.Consume(opening.tag.size());
    opening_ = opening;
    behind_ = mode_;
    mode_ = Mode::kCall;
    // A name's tag may be prose where no call's own tag stands before it.
    const bool may_be_text = opening.is_head && !behind_call_;
    reader_->Begin(bare_json_ || behind_ == Mode::kReasoning || may_be_text);
    return true;
  }

  bool ReadCall() {
    const CallReader::Result result = reader_->Read(input_, out_);
    if (result == CallReader::Result::kMore) return false;
    mode_ = behind_;
    if (result == CallReader::Result::kNoCall) {
      at_start_ = false;
      if (opening_.is_head) {
        WriteAndConsume(1);
      } else if (!bare_json_) {  // the python tag is no text
        Write(opening_.tag);
      }
      return true;
    }
    at_start_ = behind_call_ = true;
    if (thinks_ && mode_ == Mode::kContent) mode_ = Mode::kStart;
    return true;
  }

  const std::shared_ptr<const ToolTypes> tools_;
  const ReasoningTags& tags_;
  const bool thinks_;
  const bool calls_in_reasoning_;
  const bool calls_or_content_;
  const bool bare_json_;
  std::unique_ptr<CallReader> reader_;
  std::vector<Opening> openings_;
  std::vector<std::string_view> section_;  // before calls; no content
  std::vector<std::string_view> ends_;     // behind calls; no content
  std::vector<std::string_view> dropped_;  // around content; no content
  std::string starts_;                     // the first bytes of all tags

  Mode mode_ = Mode::kContent;
  Mode behind_ = Mode::kContent;  // how it goes on behind the call
  Opening opening_;               // of the call
  bool at_start_ = true;          // no text since the start or the last call
  bool behind_call_ = false;      // no text since the last call
  Place place_ = Place::kBefore;
  bool has_content_ = false;  // more than blanks
  PendingText input_;
  EventWriter out_;
  TrimmedText content_;
  TrimmedText reasoning_{/*trim_start=*/true};
};

// Everything is content.
class PlainParser : public OutputParser {
 public:
  OutputEvents Feed(TokenId, std::string_view text) override {
    if (text.empty()) return {};
    return {{OutputEvent::Kind::kContent, -1, std::string(text)}};
  }
  OutputEvents Finish(OutputEnd) override { return {}; }
};

}  // namespace

std::unique_ptr<OutputParser> NewMarkupParser(
    const OutputFormat& format, const OutputRequest& request,
    std::shared_ptr<const ToolTypes> tools) {
  const bool calls =
      format.tools != ToolFormat::kNone && !request.tools.empty();
  const ReasoningTags& tags = TagsOf(format.reasoning);
  const bool has_marks =
      request.in_content ? !tags.around_content[1].empty() : !tags.open.empty();
  if (!calls && !has_marks) {
    return std::make_unique<PlainParser>();
  }
  return std::make_unique<MarkupParser>(format, request, std::move(tools));
}

}  // namespace sluice
