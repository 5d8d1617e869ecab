#ifndef SLUICE_COMMON_TEXT_DETOKENIZER_H_
#define SLUICE_COMMON_TEXT_DETOKENIZER_H_

#include <span>
#include <string>

#include "common/core/ids.h"
#include "common/text/utf8.h"

namespace sluice {

class Tokenizer;

// Turns one sequence's tokens into text as they come. One thread. The joined
// results of Push and Finish are Tokenizer::Decode of all tokens, and no result
// ends within a character. Constant work per token.
class Detokenizer {
 public:
  // `tokenizer` outlives this. `prompt_tail`: the last few tokens before the
  // first one pushed, if the text continues them: a sentencepiece vocabulary
  // drops the leading space of a text's first word only. `shown`, ascending,
  // outlives this: special tokens that are shown in spite of
  // skip_special_tokens.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
              std::span<const TokenId> prompt_tail = {},
              std::span<const TokenId> shown = {});

  // Returns the text that `id` completes; empty for an incomplete character and
  // for an unknown id (a padded row of the model's vocabulary).
  std::string Push(TokenId id);

  // Returns whether the latest token's text begins behind a character that the
  // tokens before it left incomplete, which is shown as U+FFFD.
  bool broke_off() const { return broke_off_; }

  // Returns the bytes held back, as U+FFFD. Push needs a new object then.
  std::string Finish();

 private:
  bool IsSkipped(TokenId id) const;
  // Returns the bytes of `id` and updates the rules for the text's start.
  std::string Next(TokenId id);

  const Tokenizer& tokenizer_;
  const bool skip_special_tokens_;
  const std::span<const TokenId> shown_;
  bool at_start_ = true;  // no token so far, not even an empty one
  bool strip_space_;      // drops the next byte if it is a space
  bool broke_off_ = false;
  Utf8Stream stream_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_DETOKENIZER_H_
