#include <algorithm>

#include "common/text/output/call_reader.h"
#include "common/text/output/markup_tags.h"

namespace sluice {
namespace {

class TaggedCallReader : public CallReader {
 public:
  explicit TaggedCallReader(const ToolTypes& tools)
      : glm_(NewGlmCallReader(tools)),
        qwen_coder_(
            NewParameterCallReader(tools, MarkupOf(ToolFormat::kQwenCoder))),
        json_(NewJsonCallReader(tools, kToolCallEnd)) {}

  void Begin(bool known_only) override {
    known_only_ = known_only;
    chosen_ = nullptr;
  }

  Result Read(PendingText& input, EventWriter& out) override {
    if (chosen_ == nullptr) {
      const std::string_view text = input.text();
      size_t at = 0;
      while (at < text.size() && IsBlank(text[at])) ++at;
      if (at > kMaxCallHead) return Result::kNoCall;
      if (at == text.size()) {
        return input.ended() ? Result::kNoCall : Result::kMore;
      }
      chosen_ = glm_.get();
      if (text[at] == '{') chosen_ = json_.get();
      if (text[at] == '<') chosen_ = qwen_coder_.get();
      chosen_->Begin(known_only_);
    }
    return chosen_->Read(input, out);
  }

 private:
  const std::unique_ptr<CallReader> glm_;
  const std::unique_ptr<CallReader> qwen_coder_;
  const std::unique_ptr<CallReader> json_;
  bool known_only_ = false;
  CallReader* chosen_ = nullptr;
};

class MistralCallReader : public CallReader {
 public:
  explicit MistralCallReader(const ToolTypes& tools)
      : list_(NewListCallReader(tools, MarkupOf(ToolFormat::kMistralList))),
        named_(NewNamedCallReader(tools, MarkupOf(ToolFormat::kMistral))) {}

  void Begin(bool known_only) override {
    known_only_ = known_only;
    chosen_ = nullptr;
  }

  Result Read(PendingText& input, EventWriter& out) override {
    if (chosen_ == nullptr) {
      const std::string_view text = input.text();
      const size_t at =
          std::min(text.find_first_not_of(" \t\r\n"), text.size());
      if (at > kMaxCallHead) return Result::kNoCall;
      if (at == text.size()) {
        return input.ended() ? Result::kNoCall : Result::kMore;
      }
      const bool is_list = text[at] == '[' || text[at] == '{';
      chosen_ = is_list ? list_.get() : named_.get();
      chosen_->Begin(known_only_);
    }
    return chosen_->Read(input, out);
  }

 private:
  const std::unique_ptr<CallReader> list_;
  const std::unique_ptr<CallReader> named_;
  bool known_only_ = false;
  CallReader* chosen_ = nullptr;
};

}  // namespace

std::unique_ptr<CallReader> NewMistralCallReader(const ToolTypes& tools) {
  return std::make_unique<MistralCallReader>(tools);
}

std::unique_ptr<CallReader> NewTaggedCallReader(const ToolTypes& tools) {
  return std::make_unique<TaggedCallReader>(tools);
}

}  // namespace sluice
