#include "tests/serving/fake_text.h"

#include <memory>
#include <utility>

#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "tests/serving/toy_text.h"

namespace sluice::serving {
namespace {

// Bytes and FakeText's special tokens.
const Tokenizer& FakeTokenizer() {
  static const Tokenizer* const tokenizer = [] {
    TextSource source;
    source.tokenizer_json =
        ToyTokenizerJson({{"<s>", "</s>", "<turn>"}, /*plain=*/{}});
    return Tokenizer::Make(source)->release();
  }();
  return *tokenizer;
}

}  // namespace

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const unsigned char byte : text) tokens.push_back(byte);
  return tokens;
}

StatusOr<std::vector<TokenId>> FakeText::Encode(std::string_view text,
                                                bool special) const {
  std::vector<TokenId> tokens = Bytes(text);
  if (special) tokens.insert(tokens.begin(), kFakeBos);
  return tokens;
}

StatusOr<std::vector<TokenId>> FakeText::EncodeChat(
    const Json& messages, const Json& tools, RenderOptions options) const {
  std::vector<TokenId> tokens{kFakeBos};
  if (options.add_special_tokens) tokens.push_back(kFakeBos);
  for (const auto& argument : options.kwargs.items()) {
    const auto name = Bytes(argument.key());
    tokens.insert(tokens.end(), name.begin(), name.end());
  }
  for (const Json& tool : tools) {
    const auto name = Bytes(tool["function"]["name"].get<std::string>());
    tokens.insert(tokens.end(), name.begin(), name.end());
  }
  for (const Json& message : messages) {
    tokens.push_back(kFakeTurn);
    const auto role = message["role"].get<std::string>();
    tokens.push_back(static_cast<unsigned char>(role[0]));
    const auto content = Bytes(message["content"].get<std::string>());
    tokens.insert(tokens.end(), content.begin(), content.end());
  }
  if (tokens.size() > options.max_bytes) {
    return MakeStatus(
        StatusCode::kOutOfRange,
        Cat("the rendered messages have ", tokens.size(), " bytes"));
  }
  if (options.add_generation_prompt) tokens.push_back(kFakeTurn);
  return tokens;
}

StatusOr<std::string> FakeText::RenderChat(const Json& messages,
                                           const Json& tools,
                                           RenderOptions options) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                          EncodeChat(messages, tools, std::move(options)));
  return Decode(tokens, /*skip_special=*/false);
}

StatusOr<std::string> FakeText::Decode(std::span<const TokenId> tokens,
                                       bool skip_special) const {
  std::string text;
  for (const TokenId token : tokens) {
    if (token < 0 || token >= kFakeVocab) {
      return InvalidArgument("token ", token, " out of range");
    }
    if (token < 256 || !skip_special) text += TokenBytes(token);
  }
  return text;
}

Detokenizer FakeText::NewDecoder(std::span<const TokenId>,
                                 const DecodeOptions& options) const {
  return Detokenizer(FakeTokenizer(), options.skip_special);
}

bool FakeText::EndsInReasoning(std::span<const TokenId> prompt) const {
  return Decode(prompt, true)->ends_with("<think>");
}

TokenizerInfo FakeText::info() const {
  return {"<s>", "</s>", "", "", "{{ messages }}", true};
}

std::string FakeText::TokenText(TokenId token) const {
  if (token >= 0x80 && token < 256) return "\xef\xbf\xbd";
  return TokenBytes(token);
}

std::string FakeText::TokenBytes(TokenId token) const {
  static constexpr const char* kSpecial[] = {"<s>", "</s>", "<turn>"};
  if (token >= 256) return kSpecial[token - 256];
  return std::string(1, static_cast<char>(token));
}

TokenResult WithLogprob(TokenId token, float logprob) {
  return {token,
          TokenLogprob{token, logprob, 1},
          {TokenLogprob{'!', logprob / 2, 0}}};
}

}  // namespace sluice::serving
