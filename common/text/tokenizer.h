#ifndef SLUICE_COMMON_TEXT_TOKENIZER_H_
#define SLUICE_COMMON_TEXT_TOKENIZER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/text/vocabulary.h"

struct SluiceTokenizer;

namespace sluice {

struct TextSource;

struct EncodeOptions {
  // Adds what the model's files put around a text (BOS). Off for a rendered
  // chat, whose template writes BOS.
  bool add_special_tokens = true;
  // Turns spelled added tokens with special: true into those tokens.
  bool parse_special_tokens = true;
};

// Bytes [begin, end) of a text that become token `id`.
struct ControlSpan {
  size_t begin = 0;
  size_t end = 0;
  TokenId id = 0;
  bool operator==(const ControlSpan&) const = default;
};

// Text to token ids and back. Immutable after Load: any thread. Encoding takes
// about a second for some megabytes: long texts stay off event loops.
class Tokenizer {
 public:
  // Loads the tokenizer of `model_path`: a folder with tokenizer.json (and
  // maybe tokenizer_config.json), else with tokenizer.model (sentencepiece BPE
  // or tiktoken ranks); a .gguf file (its vocabulary); a .m file of
  // distributed-llama (the .t file of this name, else the only one beside it);
  // or such a file itself.
  // Errors name the file: NOT_FOUND, INVALID_ARGUMENT for malformed files,
  // UNIMPLEMENTED for a kind of tokenizer that is not built.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& model_path);

  // Makes a tokenizer of `source`. `keep_reference`: EncodeReference works.
  static StatusOr<std::unique_ptr<Tokenizer>> Make(const TextSource& source,
                                                   bool keep_reference = false);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the ids of `text`. INVALID_ARGUMENT if `text` is not UTF-8, or if
  // plain text would become a special token without parse_special_tokens.
  // RESOURCE_EXHAUSTED for a limit of an unusual pre-tokenizer: the ids are
  // never silently wrong.
  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        const EncodeOptions& options) const;

  // Returns the ids of a rendered prompt: the bytes of each span are that
  // token, and no other byte becomes a token with special: true. Adds nothing.
  // Spans ascend and do not overlap.
  StatusOr<std::vector<TokenId>> EncodeWithControls(
      std::string_view text, std::span<const ControlSpan> controls) const;

  // Returns the tokenizers crate's ids, for tests that compare both.
  StatusOr<std::vector<TokenId>> EncodeReference(
      std::string_view text, const EncodeOptions& options) const;

  // Returns the text of `ids`; bytes that are not UTF-8 become U+FFFD.
  // INVALID_ARGUMENT for an id outside [0, vocab_size).
  StatusOr<std::string> Decode(std::span<const TokenId> ids,
                               bool skip_special_tokens) const;

  // One token's text for people, with U+FFFD, and its bytes. Empty for an
  // unknown id.
  std::string TokenText(TokenId id) const;
  std::string TokenBytes(TokenId id) const;

  // Returns one more than the highest id. The model's embedding may have more
  // rows.
  int vocab_size() const { return vocabulary_.size(); }
  // Returns the most bytes of text per decoded byte; 0: no bound.
  size_t max_shrinking() const { return max_shrinking_; }
  // Returns whether encoding takes linear time, not only bounded time.
  bool is_linear() const { return is_linear_; }
  bool IsSpecial(TokenId id) const { return vocabulary_.IsSpecial(id); }
  // Returns the id of a spelling in the model's file ("<|eot_id|>", "Ġthe").
  std::optional<TokenId> TokenToId(std::string_view name) const {
    return vocabulary_.Find(name);
  }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // The bridge's object (bridge.h), for grammars over the vocabulary.
  const SluiceTokenizer* handle() const { return handle_; }

  std::optional<TokenId> bos_id() const;
  // Returns the tokens that end a turn by the tokenizer's files (eos, and
  // GGUF's eot and eom). config.json and generation_config.json may have more.
  std::vector<TokenId> eos_ids() const { return eos_ids_; }
  // Spellings; empty if the model has none.
  std::string bos_token() const { return bos_token_; }
  std::string eos_token() const { return eos_token_; }
  std::string pad_token() const { return pad_token_; }
  std::string unk_token() const { return unk_token_; }

 private:
  Tokenizer(SluiceTokenizer* handle, Vocabulary vocabulary,
            const TextSource& source);
  StatusOr<std::vector<TokenId>> CallEncode(
      std::string_view text, unsigned flags,
      std::span<const ControlSpan> controls) const;

  SluiceTokenizer* handle_;  // owned
  Vocabulary vocabulary_;
  size_t max_shrinking_ = 0;
  bool is_linear_ = false;
  std::string bos_token_;
  std::string eos_token_;
  std::string pad_token_;
  std::string unk_token_;
  std::vector<TokenId> eos_ids_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_TOKENIZER_H_
