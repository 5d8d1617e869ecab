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
        thinks_(format.reasoning == ReasoningFormat::kThink),
        calls_in_reasoning_(request.calls_in_reasoning),
        calls_or_content_(request.calls_or_content),
        bare_json_(format.tools == ToolFormat::kLlamaJson && !tools_->empty()),
        content_(/*trim_start=*/thinks_) {
    mode_ = thinks_ ? Mode::kStart : Mode::kContent;
    if (thinks_ && request.in_reasoning) mode_ = Mode::kReasoning;
    if (tools_->empty() || format.tools == ToolFormat::kNone) return;
    if (bare_json_) {
      reader_ = NewJsonCallReader(*tools_, "");
      openings_ = {{kPythonTag, false}};
    } else {
      reader_ = NewTaggedCallReader(*tools_);
      openings_ = {{kToolCall, false}};
    }
    if (format.tools == ToolFormat::kQwenCoder) {
      openings_.push_back({kFunction, true});
    }
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
    if (out_.calls() == 0) out_.Content(content_.TakeHeld());
    return out_.Take();
  }

 private:
  using Match = PendingText::Match;
  enum class Mode { kStart, kReasoning, kContent, kCall };

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
    if (mode_ == Mode::kReasoning) {
      out_.Reasoning(reasoning_.Push(text));
      return;
    }
    has_content_ = has_content_ || !IsBlank(text);
    out_.Content(content_.Push(text));
    // Without possible calls, holding back would only delay.
    if (openings_.empty()) out_.Content(content_.TakeHeld());
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
    if (input_.Find(kThink) == Match::kYes) {
      input_.Consume(kThink.size());
      mode_ = Mode::kReasoning;
    } else if (input_.Find(kThinkEnd) == Match::kYes) {
      input_.Consume(kThinkEnd.size());
    } else if (input_.FindAny({kThink, kThinkEnd}) == Match::kMaybe) {
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
    if (mode_ == Mode::kContent && !MayCall()) {
      WriteAndConsume(input_.text().size());
      return false;
    }
    const std::string_view text = input_.text();
    WriteAndConsume(std::min(text.find('<'), text.size()));
    if (input_.text().empty()) return false;
    if (mode_ == Mode::kContent && !MayCall()) return true;
    Match best = Match::kNo;
    if (mode_ == Mode::kReasoning) {
      best = input_.Find(kThinkEnd);
      if (best == Match::kYes) return EndReasoning();
      if (!reasoning_.began()) {
        const Match again = input_.Find(kThink);
        if (again == Match::kYes) input_.Consume(kThink.size());
        if (again == Match::kYes) return true;
        best = std::max(best, again);
      }
    }
    if (mode_ != Mode::kReasoning || calls_in_reasoning_) {
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

  bool EndReasoning() {
    input_.Consume(kThinkEnd.size());
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
    reader_->Begin(bare_json_ || behind_ == Mode::kReasoning);
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
  const bool thinks_;
  const bool calls_in_reasoning_;
  const bool calls_or_content_;
  const bool bare_json_;
  std::unique_ptr<CallReader> reader_;
  std::vector<Opening> openings_;

  Mode mode_ = Mode::kContent;
  Mode behind_ = Mode::kContent;  // how it goes on behind the call
  Opening opening_;               // of the call
  bool at_start_ = true;          // no text since the start or the last call
  bool behind_call_ = false;
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
  if (!calls && format.reasoning == ReasoningFormat::kNone) {
    return std::make_unique<PlainParser>();
  }
  return std::make_unique<MarkupParser>(format, request, std::move(tools));
}

}  // namespace sluice
