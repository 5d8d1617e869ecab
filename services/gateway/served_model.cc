#include "services/gateway/served_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/model/model_config.h"
#include "common/model/stop_ids.h"
#include "common/text/chat_template.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"
#include "common/weights/model_file.h"
#include "services/gateway/handlers/prepare.h"

namespace sluice::gateway {
namespace {

// How much of the prompt a detokenizer looks at.
constexpr size_t kPromptTail = 16;

// A text beyond a limit of the tokenizer or the template is the request's
// fault: unlike with a full queue, trying again does not help.
StatusOr<std::vector<TokenId>> LimitsAsInvalid(
    StatusOr<std::vector<TokenId>> ids) {
  if (ids.status().code() != StatusCode::kResourceExhausted) return ids;
  return InvalidArgument(Message(ids.status()));
}

class TokenizerDecoder : public TextDecoder {
 public:
  TokenizerDecoder(const Tokenizer& tokenizer, std::span<const TokenId> tail)
      : detokenizer_(tokenizer, /*skip_special_tokens=*/true, tail) {}
  std::string Push(TokenId token) override { return detokenizer_.Push(token); }
  std::string Finish() override { return detokenizer_.Finish(); }

 private:
  Detokenizer detokenizer_;
};

// common/text's objects of one model.
class LoadedText : public ModelText {
 public:
  static StatusOr<std::unique_ptr<LoadedText>> Load(const std::string& path) {
    auto text = std::make_unique<LoadedText>();
    SLUICE_ASSIGN_OR_RETURN(text->tokenizer_, Tokenizer::Load(path));
    auto chat_template = ChatTemplate::Load(path, *text->tokenizer_);
    if (chat_template.ok()) {
      text->template_ = *std::move(chat_template);
    } else if (chat_template.status().code() != StatusCode::kNotFound) {
      return chat_template.status();
    }
    return text;
  }

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        bool special) const override {
    EncodeOptions options;
    options.add_special_tokens = special;
    return LimitsAsInvalid(tokenizer_->Encode(text, options));
  }

  StatusOr<std::vector<TokenId>> EncodeChat(
      const Json& messages, bool add_generation_prompt) const override {
    if (template_ == nullptr) {
      return InvalidArgument(
          "this model has no chat template; use /v1/completions");
    }
    RenderOptions options;
    options.add_generation_prompt = add_generation_prompt;
    return LimitsAsInvalid(template_->RenderIds(messages, nullptr, options));
  }

  StatusOr<std::string> Decode(std::span<const TokenId> tokens,
                               bool skip_special) const override {
    // The model's vocabulary may have more rows than the tokenizer has ids.
    std::vector<TokenId> known;
    for (const TokenId token : tokens) {
      if (token < tokenizer_->vocab_size()) known.push_back(token);
    }
    return tokenizer_->Decode(known, skip_special);
  }

  std::unique_ptr<TextDecoder> NewDecoder(
      std::span<const TokenId> prompt) const override {
    const size_t tail = std::min(prompt.size(), kPromptTail);
    return std::make_unique<TokenizerDecoder>(*tokenizer_, prompt.last(tail));
  }

  std::string TokenText(TokenId token) const override {
    return tokenizer_->TokenText(token);
  }
  std::string TokenBytes(TokenId token) const override {
    return tokenizer_->TokenBytes(token);
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;  // null: the model has none
};

std::string NameOf(const std::string& path) {
  std::filesystem::path last = std::filesystem::path(path).lexically_normal();
  if (!last.has_filename()) last = last.parent_path();
  return last.extension() == ".gguf" ? last.stem().string()
                                     : last.filename().string();
}

// Ids of config.json, generation_config.json and the tokenizer's files.
StatusOr<std::vector<TokenId>> EosIds(const weights::ModelFile& file,
                                      const Tokenizer& tokenizer,
                                      int vocab_size) {
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<TokenId> ids,
      StopIds(file.config(), file.generation_config(), vocab_size));
  for (const TokenId id : tokenizer.eos_ids()) {
    if (id >= 0 && id < vocab_size) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

StatusOr<ServedModel> LoadServedModel(const std::string& path,
                                      const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(const auto file, weights::OpenModel(path));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(file->config()));
  ServedModel model;
  model.name = name.empty() ? NameOf(path) : name;
  model.root = path;
  model.created = UnixSeconds();
  model.vocab_size = config.vocab_size;
  model.max_positions = config.max_position_embeddings;
  SLUICE_ASSIGN_OR_RETURN(model.defaults,
                          ParseSamplingDefaults(file->generation_config()));
  SLUICE_ASSIGN_OR_RETURN(auto text, LoadedText::Load(path));
  SLUICE_ASSIGN_OR_RETURN(model.eos_ids,
                          EosIds(*file, text->tokenizer(), config.vocab_size));
  SLUICE_ASSIGN_OR_RETURN(const weights::ModelDigest digest,
                          weights::ComputeIdentity(*file));
  model.digest = digest.Hex();
  model.text = std::move(text);
  return model;
}

}  // namespace sluice::gateway
