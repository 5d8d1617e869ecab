#ifndef SLUICE_COMMON_SERVING_LOADED_TEXT_H_
#define SLUICE_COMMON_SERVING_LOADED_TEXT_H_

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/serving/chat_history.h"
#include "common/serving/model_text.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace sluice::serving {

// The names of output formats in flags.
struct FormatNames {
  std::string tools = "auto";
  std::string reasoning = "auto";
};

// The text objects of one loaded model. Any thread.
class LoadedText : public ModelText {
 public:
  // Reads the tokenizer and chat template of the model at `path`. `format`: see
  // ChooseOutputFormat; where a template shows no format, "auto" is "generic".
  static StatusOr<std::unique_ptr<LoadedText>> Load(
      const std::string& path, const FormatNames& format = {});

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        bool special) const override;
  StatusOr<std::vector<TokenId>> EncodePlain(
      std::string_view text) const override;
  std::optional<TokenId> FindToken(std::string_view name) const override;
  StatusOr<std::vector<TokenId>> EncodeChat(
      const Json& messages, const Json& tools,
      RenderOptions options) const override;
  StatusOr<std::string> RenderChat(const Json& messages, const Json& tools,
                                   RenderOptions options) const override;
  bool ReadsVariable(std::string_view name) const override {
    return template_ != nullptr && template_->Reads(name);
  }
  StatusOr<std::string> Decode(std::span<const TokenId> tokens,
                               bool skip_special) const override;
  Detokenizer NewDecoder(std::span<const TokenId> prompt,
                         const DecodeOptions& options) const override;
  OutputFormat output_format() const override { return format_; }
  std::vector<std::unique_ptr<OutputParser>> NewParsers(
      const OutputRequest& request, size_t count) const override;
  bool EndsInReasoning(std::span<const TokenId> prompt) const override;
  std::string TokenText(TokenId token) const override;
  std::string TokenBytes(TokenId token) const override;
  size_t max_bytes_per_token() const override { return max_bytes_per_token_; }
  bool is_quick() const override;
  TokenizerInfo info() const override;

 private:
  // What the chat template gets of a request.
  struct TemplateInput {
    Json messages;
    Json tools;
    RenderOptions options;
  };

  LoadedText() = default;
  StatusOr<TemplateInput> MakeTemplateInput(const Json& messages,
                                            const Json& tools,
                                            RenderOptions options) const;
  // Records how long the rendering of a prompt took.
  void NoteRendering(double seconds, size_t tokens) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;  // null: none
  std::string template_source_;
  HistoryRules history_;  // the template's
  OutputFormat format_;
  std::vector<TokenId> markup_;  // its special tokens, ascending
  size_t max_bytes_per_token_ = 0;
  bool adds_bos_ = false;
  // Quick small prompts in a row until the template counts as quick again.
  mutable std::atomic<int> probation_{0};
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_LOADED_TEXT_H_
