#ifndef SLUICE_COMMON_TEXT_STAND_INS_H_
#define SLUICE_COMMON_TEXT_STAND_INS_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/text/tokenizer.h"

namespace sluice {

// Words in a chat's messages that stand for special tokens, where a template
// has no place for these and the text of a request cannot spell them. A word
// is `word` and a digit, the index of its token. Value type.
struct StandIns {
  std::string word;                 // empty: none; of WordNotIn
  std::vector<std::string> tokens;  // ten at most

  std::string For(size_t token) const { return word + std::to_string(token); }
};

// Returns a random word that `text` does not have, of small letters, which few
// templates change.
StatusOr<std::string> WordNotIn(std::string_view text);

// Puts the tokens of `stand_ins` into `text`, a rendered prompt, and those that
// are special in `vocabulary` into `controls`, its control tokens.
void PutTokens(const StandIns& stand_ins, const Vocabulary& vocabulary,
               std::string& text, std::vector<ControlSpan>& controls);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_STAND_INS_H_
