#ifndef SLUICE_COMMON_SERVING_TEXT_OFFSETS_H_
#define SLUICE_COMMON_SERVING_TEXT_OFFSETS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/core/ids.h"
#include "common/serving/model_text.h"
#include "common/text/detokenizer.h"

namespace sluice::serving {

// Returns whether `byte` of a UTF-8 text is not the first of its character.
bool ContinuesCharacter(char byte);

// Returns the number of characters of a UTF-8 text.
int64_t CountCharacters(std::string_view utf8);

// Tells the character of a choice's text at which each of its tokens begins:
// `text[offset:]` begins with the token. A token that is a part of a character
// begins where that character does; a token that the text does not show, where
// the next token does. Copies go on by themselves. One thread.
class TextOffsets {
 public:
  // The prompt in front of a completion.
  struct Echo {
    std::string text;  // as the answer shows it
    size_t num_tokens = 0;
    // `text` is what the client gave, not what the tokens decode to: special
    // tokens that it spells are shown, those that were added are not.
    bool is_as_given = false;
  };

  // `text` outlives this. `prompt` is read here alone.
  TextOffsets(const ModelText& text, std::span<const TokenId> prompt,
              bool skip_special, std::optional<Echo> echo = std::nullopt);

  // Returns the offset of the next token: of the echo's, then the completion's.
  int64_t Next(TokenId token);

 private:
  int64_t NextOf(Detokenizer& decoder, TokenId token);
  int64_t NextAsGiven(TokenId token);

  const ModelText& text_;
  std::shared_ptr<const Echo> echo_;  // null: none
  Detokenizer echo_decoder_;
  Detokenizer decoder_;
  int64_t characters_ = 0;  // of the tokens so far
  size_t echoed_ = 0;       // tokens of the echo so far
  size_t at_ = 0;           // bytes of the echo's text so far
  size_t window_ = 0;       // bytes behind `at_` in which the next token may be
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_TEXT_OFFSETS_H_
