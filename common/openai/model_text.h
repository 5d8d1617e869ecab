#ifndef SLUICE_COMMON_OPENAI_MODEL_TEXT_H_
#define SLUICE_COMMON_OPENAI_MODEL_TEXT_H_

#include <memory>
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

namespace sluice::openai {

// What of a sequence's tokens shows.
struct DecodeOptions {
  bool skip_special = true;
  // Special tokens that are markup of the model's output format are shown all
  // the same: what tells the output apart reads them.
  bool show_markup = false;
};

// What /tokenizer_info tells. Spellings; empty if the model has none.
struct TokenizerInfo {
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::string chat_template;
  bool adds_bos = false;  // to a text with special tokens asked for
};

// The served model's text side: what the gateway asks of common/text, which
// tests replace by a vocabulary of bytes. Immutable; any thread. Encoding is
// work: long texts are kept off the event loops.
class ModelText {
 public:
  virtual ~ModelText() = default;

  // `special`: spelled special tokens become tokens, and BOS is added where
  // the model wants it.
  virtual StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                bool special) const = 0;
  // Renders the template; `tools` null: nothing may be called. Message text can
  // never become a special token. INVALID_ARGUMENT with the template's own
  // complaint, or if the model has no template.
  virtual StatusOr<std::vector<TokenId>> EncodeChat(
      const Json& messages, const Json& tools, RenderOptions options) const = 0;
  // INVALID_ARGUMENT for an id out of range.
  virtual StatusOr<std::string> Decode(std::span<const TokenId> tokens,
                                       bool skip_special) const = 0;
  // Of what follows `prompt`.
  virtual Detokenizer NewDecoder(std::span<const TokenId> prompt,
                                 const DecodeOptions& options) const = 0;

  // How the model sets reasoning and tool calls apart.
  virtual OutputFormat output_format() const = 0;
  // One for each of a request's `count` outputs.
  virtual std::vector<std::unique_ptr<OutputParser>> NewParsers(
      const OutputRequest& request, size_t count) const = 0;
  // Whether what follows `prompt` begins within reasoning.
  virtual bool EndsInReasoning(std::span<const TokenId> prompt) const = 0;

  // One token for people, and as bytes.
  virtual std::string TokenText(TokenId token) const = 0;
  virtual std::string TokenBytes(TokenId token) const = 0;

  // Bytes of text that one token stands for at most: a text of more than n
  // times as many has more than n tokens. 0: no such bound is known.
  virtual size_t max_bytes_per_token() const = 0;
  // Small texts take so little time that an event loop can encode them.
  virtual bool is_quick() const = 0;
  virtual TokenizerInfo info() const = 0;
};

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_MODEL_TEXT_H_
