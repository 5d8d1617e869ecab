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
  // What the model's files put around a text (BOS). Off for a rendered chat,
  // whose template writes it.
  bool add_special_tokens = true;
  // Text that spells an added token with special: true becomes that token.
  bool parse_special_tokens = true;
};

// Bytes [begin, end) of a text that are the token `id`.
struct ControlSpan {
  size_t begin = 0;
  size_t end = 0;
  TokenId id = 0;
  bool operator==(const ControlSpan&) const = default;
};

// Text to token ids and back. Immutable after Load: every method may be
// called from any thread at once. Encoding is work (about a second for some
// megabytes): keep it off event loops for long texts.
class Tokenizer {
 public:
  // `model_path`: a folder with tokenizer.json (tokenizer_config.json is read
  // beside it), else with tokenizer.model (sentencepiece BPE or tiktoken
  // ranks); a .gguf file (its vocabulary); or such a file itself.
  // NOT_FOUND, INVALID_ARGUMENT for malformed files, UNIMPLEMENTED for a kind
  // of tokenizer that is not built, all naming the file.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& model_path);

  // From what the files said. `keep_reference`: EncodeReference works.
  static StatusOr<std::unique_ptr<Tokenizer>> Make(const TextSource& source,
                                                   bool keep_reference = false);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // INVALID_ARGUMENT where `text` is not UTF-8, or where plain text would
  // become a special token although parse_special_tokens is off.
  // RESOURCE_EXHAUSTED where a limit of an unusual pre-tokenizer is hit: the
  // ids are never silently others.
  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        const EncodeOptions& options) const;

  // Encodes a rendered prompt: the bytes of each span are that token, and no
  // other byte can become a token with special: true. Adds nothing around it.
  // Spans ascend and do not overlap.
  StatusOr<std::vector<TokenId>> EncodeWithControls(
      std::string_view text, std::span<const ControlSpan> controls) const;

  // The tokenizers crate's own encoding, for tests that compare it.
  StatusOr<std::vector<TokenId>> EncodeReference(
      std::string_view text, const EncodeOptions& options) const;

  // Text of `ids`; bytes that are not UTF-8 become U+FFFD.
  // INVALID_ARGUMENT for an id outside [0, vocab_size).
  StatusOr<std::string> Decode(std::span<const TokenId> ids,
                               bool skip_special_tokens) const;

  // One token for people, which may hold U+FFFD, and as it is in bytes.
  // Empty for an id that does not exist.
  std::string TokenText(TokenId id) const;
  std::string TokenBytes(TokenId id) const;

  // One more than the highest id. The model's embedding may have more rows.
  int vocab_size() const { return vocabulary_.size(); }
  // A text has at most so many times the bytes of its tokens; 0: no bound.
  size_t max_shrinking() const { return max_shrinking_; }
  // Whether encoding takes linear time, not only bounded time.
  bool is_linear() const { return is_linear_; }
  bool IsSpecial(TokenId id) const { return vocabulary_.IsSpecial(id); }
  // By the spelling in the model's file ("<|eot_id|>", "Ġthe").
  std::optional<TokenId> TokenToId(std::string_view name) const {
    return vocabulary_.Find(name);
  }
  const Vocabulary& vocabulary() const { return vocabulary_; }

  std::optional<TokenId> bos_id() const;
  // Tokens that end a turn by the tokenizer's files (eos, and GGUF's eot and
  // eom). config.json and generation_config.json may name more.
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
