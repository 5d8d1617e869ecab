#ifndef SLUICE_TESTS_SERVING_FAKE_TEXT_H_
#define SLUICE_TESTS_SERVING_FAKE_TEXT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/core/generate_request.h"
#include "common/serving/model_text.h"

namespace sluice::serving {

// A vocabulary of the 256 bytes and three special tokens. A chat is <turn>,
// the role's first letter and the content, for each message; variables of the
// template come before them by name, as text, and so do the tools' names.
inline constexpr TokenId kFakeBos = 256;
inline constexpr TokenId kFakeEos = 257;
inline constexpr TokenId kFakeTurn = 258;
inline constexpr int kFakeVocab = 259;

std::vector<TokenId> Bytes(std::string_view text);

class FakeText : public ModelText {
 public:
  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        bool special) const override;
  StatusOr<std::vector<TokenId>> EncodePlain(
      std::string_view text) const override {
    return Bytes(text);
  }
  std::optional<TokenId> FindToken(std::string_view name) const override {
    const auto found = names.find(std::string(name));
    if (found == names.end()) return std::nullopt;
    return found->second;
  }
  StatusOr<std::string> RenderChat(const Json& messages, const Json& tools,
                                   RenderOptions options) const override;
  StatusOr<std::vector<TokenId>> EncodeChat(
      const Json& messages, const Json& tools,
      RenderOptions options) const override;
  bool ReadsVariable(std::string_view name) const override {
    return !name.starts_with("unread");
  }
  StatusOr<std::string> Decode(std::span<const TokenId> tokens,
                               bool skip_special) const override;
  Detokenizer NewDecoder(std::span<const TokenId> prompt,
                         const DecodeOptions& options) const override;
  OutputFormat output_format() const override { return format; }
  std::vector<std::unique_ptr<OutputParser>> NewParsers(
      const OutputRequest& request, size_t count) const override {
    std::vector<std::unique_ptr<OutputParser>> parsers;
    while (parsers.size() < count) parsers.push_back(new_parser(request));
    return parsers;
  }
  bool EndsInReasoning(std::span<const TokenId> prompt) const override;
  std::string TokenText(TokenId token) const override;
  std::string TokenBytes(TokenId token) const override;
  size_t max_bytes_per_token() const override { return 4; }
  bool is_quick() const override { return quick; }
  TokenizerInfo info() const override;

  bool quick = true;
  std::map<std::string, TokenId> names;  // for FindToken
  OutputFormat format;  // of the output; with one, new_parser is needed
  std::function<std::unique_ptr<OutputParser>(const OutputRequest&)> new_parser;
};

// A token with its logprob and that of token 0 ahead of it.
TokenResult WithLogprob(TokenId token, float logprob);

}  // namespace sluice::serving

#endif  // SLUICE_TESTS_SERVING_FAKE_TEXT_H_
