#include <optional>
#include <utility>
#include <vector>

#include "common/text/output/call_reader.h"
#include "common/text/output/event_writer.h"
#include "common/text/output/harmony_header.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"

namespace sluice {
namespace {

constexpr std::string_view kFunctions = "functions.";

// A message to a function of ours is a call. One on the channel `analysis` is
// reasoning, and so is one for a recipient other than the user (a tool that the
// model knows from training). All else is content: also text where a header
// should be, and messages on no known channel. Messages of one kind are set
// apart by a line feed.
class HarmonyParser : public OutputParser {
 public:
  HarmonyParser(const Vocabulary& vocabulary,
                std::shared_ptr<const ToolTypes> tools)
      : tools_(std::move(tools)) {
    for (size_t i = 0; i < std::size(kHarmonyTokens); ++i) {
      const auto id = vocabulary.Find(kHarmonyTokens[i]);
      if (id) markers_.push_back({*id, static_cast<HarmonyToken>(i)});
    }
  }

  OutputEvents Feed(TokenId token, std::string_view text) override {
    for (const auto& [id, kind] : markers_) {
      if (id != token) continue;
      // A character that the marker cut off comes before it.
      const std::string_view name = kHarmonyTokens[static_cast<size_t>(kind)];
      if (text.ends_with(name)) text.remove_suffix(name.size());
      Text(text);
      Mark(kind);
      return out_.Take();
    }
    Text(text);
    return out_.Take();
  }

  OutputEvents Finish(OutputEnd end) override {
    const bool stopped = end == OutputEnd::kStopped;
    const bool text = header_->is_bare() && header_->recipient().empty();
    if (place_ == Place::kHeader && (stopped || text)) {
      EndHeader(stopped);
    } else if (place_ == Place::kBody && stopped) {
      EndMessage();
    }
    return out_.Take();
  }

 private:
  enum class Place { kHeader, kBody, kBetween };
  enum class Kind { kContent, kReasoning, kCall };

  void Text(std::string_view text) {
    if (text.empty()) return;
    if (place_ == Place::kHeader) {
      text = header_->Push(text);
      if (!header_->full() && !header_->is_text()) return;
      const std::string begun = header_->rest();
      if (header_->is_text()) Restart(/*assistant=*/true);  // no words of it
      BeginMessage();
      Body(begun);
    } else if (place_ == Place::kBetween) {
      while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
      if (text.empty()) return;
      Restart(/*assistant=*/true);
      BeginMessage();
    }
    Body(text);
  }

  void Mark(HarmonyToken token) {
    switch (token) {
      case HarmonyToken::kStart:
        EndOpen(/*closed=*/false);
        Restart(/*assistant=*/false);
        break;
      case HarmonyToken::kChannel:
        if (place_ != Place::kHeader) {
          EndOpen(/*closed=*/false);
          Restart(/*assistant=*/true);
        }
        header_->BeginChannel();
        break;
      case HarmonyToken::kConstrain:
        if (place_ == Place::kHeader) header_->BeginType();
        break;
      case HarmonyToken::kMessage:
        if (place_ == Place::kBetween) Restart(/*assistant=*/true);
        if (place_ == Place::kHeader) BeginMessage();
        break;
      case HarmonyToken::kEnd:
      case HarmonyToken::kCall:
      case HarmonyToken::kReturn:
        EndOpen(/*closed=*/true);
        place_ = Place::kBetween;
        break;
    }
  }

  void Restart(bool assistant) {
    header_.emplace(assistant);
    place_ = Place::kHeader;
  }

  // Ends the open header or message. `closed`: a token closes it.
  void EndOpen(bool closed) {
    if (place_ == Place::kHeader) {
      EndHeader(closed);
    } else if (place_ == Place::kBody) {
      EndMessage();
    }
    place_ = Place::kBetween;
  }

  // Ends a header without a message: a call without arguments, or text.
  void EndHeader(bool closed) {
    const std::string text = header_->rest();
    const bool calls = closed && CallName().has_value();
    if (text.empty() && !calls) return;
    BeginMessage();
    Body(text);
    EndMessage();
  }

  // Returns the function of the message, if the message is a call.
  std::optional<std::string> CallName() const {
    if (tools_->empty() || !header_->from_assistant()) return std::nullopt;
    std::string name = header_->recipient();
    if (name.starts_with(kFunctions)) {
      name.erase(0, kFunctions.size());
      if (name.size() <= kMaxCallHead && IsCallName(name)) return name;
    }
    if (tools_->Has(name)) return name;
    return std::nullopt;
  }

  Kind KindOfMessage() const {
    if (header_->channel() == "analysis") return Kind::kReasoning;
    const std::string recipient = header_->recipient();
    if (recipient.empty() || recipient == "user" || recipient == "all") {
      return Kind::kContent;
    }
    if (recipient == "assistant" && header_->from_assistant()) {
      return Kind::kContent;
    }
    // A call without offered tools, or of an impossible name: its arguments are
    // shown.
    if (recipient.starts_with(kFunctions)) return Kind::kContent;
    return Kind::kReasoning;
  }

  void BeginMessage() {
    place_ = Place::kBody;
    wrote_ = false;
    if (const auto name = CallName()) {
      kind_ = Kind::kCall;
      out_.BeginCall(*name);
    } else {
      kind_ = KindOfMessage();
    }
  }

  void Body(std::string_view text) {
    if (kind_ == Kind::kCall && !wrote_) {
      while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
    }
    if (text.empty()) return;
    const bool first = !std::exchange(wrote_, true);
    if (kind_ == Kind::kCall) {
      out_.Arguments(text);
    } else if (kind_ == Kind::kReasoning) {
      if (std::exchange(has_reasoning_, true) && first) out_.Reasoning("\n");
      out_.Reasoning(text);
    } else {
      if (std::exchange(has_content_, true) && first) out_.Content("\n");
      out_.Content(text);
    }
  }

  void EndMessage() {
    if (kind_ != Kind::kCall) return;
    if (!wrote_) out_.Arguments("{}");
    out_.EndCall();
  }

  const std::shared_ptr<const ToolTypes> tools_;
  std::vector<std::pair<TokenId, HarmonyToken>> markers_;
  EventWriter out_;

  Place place_ = Place::kHeader;
  // Of the last message; the prompt ended behind <|start|>assistant.
  std::optional<HarmonyHeader> header_{HarmonyHeader(/*assistant=*/true)};
  Kind kind_ = Kind::kContent;
  bool wrote_ = false;  // something of the message
  bool has_content_ = false;
  bool has_reasoning_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> NewHarmonyParser(
    const Vocabulary& vocabulary, std::shared_ptr<const ToolTypes> tools) {
  return std::make_unique<HarmonyParser>(vocabulary, std::move(tools));
}

}  // namespace sluice
