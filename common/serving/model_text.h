#ifndef SLUICE_COMMON_SERVING_MODEL_TEXT_H_
#define SLUICE_COMMON_SERVING_MODEL_TEXT_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/text/chat_template.h"
#include "common/text/detokenizer.h"
#include "common/text/output/output_parser.h"

namespace sluice::serving {

// The tokens of a sequence that its text shows.
struct DecodeOptions {
  bool skip_special = true;
  // Shows special tokens of the output format's markup, which the output parser
  // needs.
  bool show_markup = false;
};

// The fields of /tokenizer_info. Spellings; empty if the model has none.
struct TokenizerInfo {
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::string chat_template;
  bool adds_bos = false;  // before a text with special tokens
};

// The served model's text side; tests replace it by a vocabulary of bytes.
// Immutable; any thread. Encoding takes time: long texts stay off the event
// loops.
class ModelText {
 public:
  virtual ~ModelText() = default;

  // Returns the ids of `text`. With `special`, spelled special tokens become
  // tokens, and BOS is added if the model needs it.
  virtual StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                bool special) const = 0;
  // Returns the ids of `text`, in which a spelled special token is text.
  virtual StatusOr<std::vector<TokenId>> EncodePlain(
      std::string_view text) const = 0;
  // Returns the token of that name in the tokenizer's files ("<fim_prefix>").
  virtual std::optional<TokenId> FindToken(std::string_view name) const = 0;
  // Returns the ids of the rendered chat; `tools` null: no tools. Text of
  // messages never becomes a special token. INVALID_ARGUMENT with the
  // template's own words, or for a model without a template.
  virtual StatusOr<std::vector<TokenId>> EncodeChat(
      const Json& messages, const Json& tools, RenderOptions options) const = 0;
  // Returns the rendered chat as text, which no longer tells the template's
  // special tokens from what messages spell. Errors as EncodeChat's.
  virtual StatusOr<std::string> RenderChat(const Json& messages,
                                           const Json& tools,
                                           RenderOptions options) const = 0;
  // Returns whether the chat template reads the variable `name` from outside.
  virtual bool ReadsVariable(std::string_view name) const = 0;
  // Returns the text. INVALID_ARGUMENT for an id out of range.
  virtual StatusOr<std::string> Decode(std::span<const TokenId> tokens,
                                       bool skip_special) const = 0;
  // Returns a decoder of the tokens behind `prompt`.
  virtual Detokenizer NewDecoder(std::span<const TokenId> prompt,
                                 const DecodeOptions& options) const = 0;

  // Returns the model's format of reasoning and tool calls.
  virtual OutputFormat output_format() const = 0;
  // Returns a parser for each of a request's `count` outputs.
  virtual std::vector<std::unique_ptr<OutputParser>> NewParsers(
      const OutputRequest& request, size_t count) const = 0;
  // Returns whether the output behind `prompt` begins within reasoning.
  virtual bool EndsInReasoning(std::span<const TokenId> prompt) const = 0;

  // One token's text, for people and as bytes.
  virtual std::string TokenText(TokenId token) const = 0;
  virtual std::string TokenBytes(TokenId token) const = 0;

  // Returns the most bytes of text that one token stands for: a text of more
  // than n times as many has more than n tokens. 0: no known bound.
  virtual size_t max_bytes_per_token() const = 0;
  // Returns whether an event loop has time to encode small texts.
  virtual bool is_quick() const = 0;
  virtual TokenizerInfo info() const = 0;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_MODEL_TEXT_H_
