#ifndef SLUICE_COMMON_TEXT_DETOKENIZER_H_
#define SLUICE_COMMON_TEXT_DETOKENIZER_H_

#include <span>
#include <string>

#include "common/core/ids.h"
#include "common/text/utf8.h"

namespace sluice {

class Tokenizer;

// Turns one sequence's tokens into text as they come. One thread. What Push
// and Finish return, joined, is Tokenizer::Decode of the whole, and no piece
// ends within a character. Constant work per token.
class Detokenizer {
 public:
  // `tokenizer` outlives this. `prompt_tail`: the tokens before the first
  // one pushed, if the text continues them: a sentencepiece vocabulary drops
  // the leading space of a text's first word only. The last few are enough;
  // their own text is not returned. `shown`, ascending, outlives this: special
  // tokens that are not skipped with the others.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
              std::span<const TokenId> prompt_tail = {},
              std::span<const TokenId> shown = {});

  // The text that `id` completes; empty while a character is incomplete. An
  // id that does not exist (a padded row of the model's vocabulary) gives
  // nothing.
  std::string Push(TokenId id);

  // What was held back, as U+FFFD. Push may follow only on a new object.
  std::string Finish();

 private:
  bool IsSkipped(TokenId id) const;
  // What `id` adds in bytes; moves on the rules for the text's start.
  std::string Next(TokenId id);

  const Tokenizer& tokenizer_;
  const bool skip_special_tokens_;
  const std::span<const TokenId> shown_;
  bool at_start_ = true;  // nothing shown yet, not even an empty token
  bool strip_space_;      // the next byte, if it is a space, is dropped
  Utf8Stream stream_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_DETOKENIZER_H_
