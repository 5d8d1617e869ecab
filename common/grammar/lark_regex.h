#ifndef SLUICE_COMMON_GRAMMAR_LARK_REGEX_H_
#define SLUICE_COMMON_GRAMMAR_LARK_REGEX_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice {

// The most bytes of an expression of RegexOfLark.
inline constexpr size_t kMaxLarkRegexBytes = size_t{32} << 10;

// Returns one expression of ECMA-262, anchored at both ends, for the texts of a
// Lark grammar: a JSON Schema's `pattern` then holds a string within a call to
// the grammar. Rules, terminals, groups, repeats, literals, ranges, regular
// expressions without flags, and imports of `common`. UNIMPLEMENTED for a rule
// that contains itself, %ignore, other grammars within it, look-around, and an
// expression above kMaxLarkRegexBytes; INVALID_ARGUMENT for a malformed text.
// Takes time in proportion to the text and a fixed bound.
StatusOr<std::string> RegexOfLark(std::string_view lark);

// Whether an expression of ECMA-262 looks ahead or behind, which no grammar
// holds.
bool HasLookaround(std::string_view regex);

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_LARK_REGEX_H_
