#include "common/text/output/call_reader.h"
#include "common/text/output/markup_tags.h"

namespace sluice {
namespace {

class TaggedCallReader : public CallReader {
 public:
  explicit TaggedCallReader(const ToolTypes& tools)
      : glm_(NewGlmCallReader(tools)),
        qwen_coder_(NewQwenCoderCallReader(tools)),
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

}  // namespace

std::unique_ptr<CallReader> NewTaggedCallReader(const ToolTypes& tools) {
  return std::make_unique<TaggedCallReader>(tools);
}

}  // namespace sluice
