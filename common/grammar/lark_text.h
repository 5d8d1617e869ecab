#ifndef SLUICE_COMMON_GRAMMAR_LARK_TEXT_H_
#define SLUICE_COMMON_GRAMMAR_LARK_TEXT_H_

#include <span>
#include <string>
#include <string_view>

#include "common/text/vocabulary.h"

namespace sluice {

// Pieces of a grammar in llguidance's Lark.

// Returns `text` as a quoted literal; empty text as a literal of nothing.
std::string LarkLiteral(std::string_view text);

// Returns `text` as a regular expression that matches just it, without slashes
// around.
std::string EscapedRegex(std::string_view text);

// Returns `regex` as it stands between slashes.
std::string WithEscapedSlashes(std::string_view regex);

// Returns a tag of the markup: its id if the vocabulary calls the tag special,
// else its spelling. Where a special token begins the tag, the token's id
// stands for that part of the spelling.
std::string LarkTag(std::string_view tag, const Vocabulary& vocabulary);
bool IsSpecialTag(std::string_view tag, const Vocabulary& vocabulary);
// Returns whether a tag is or begins with a special token.
bool BeginsSpecial(std::string_view tag, const Vocabulary& vocabulary);

// Returns the definition of a rule `name`: a text that matches `terminal`, as
// /[a-z]+/ or (/a/ | /b/), and spells none of `never`, and then `end`.
std::string LarkTextUntil(const std::string& name, std::string_view end,
                          std::span<const std::string_view> never,
                          const Vocabulary& vocabulary,
                          const std::string& terminal = "/(?s:.*)/");

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_LARK_TEXT_H_
