#ifndef SLUICE_COMMON_TEXT_OUTPUT_PYTHON_LITERAL_H_
#define SLUICE_COMMON_TEXT_OUTPUT_PYTHON_LITERAL_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

inline bool IsQuote(char c) { return c == '"' || c == '\''; }

// An escape in a string of Python.
struct PythonEscape {
  size_t size = 0;   // bytes of the escape; 0: needs more text
  std::string text;  // what it stands for, UTF-8
};

// Returns the escape that `text` begins with, a backslash. What is no escape
// stands for itself: a backslash before another letter, digits that are
// missing. Halves of a character that no other half joins are U+FFFD.
// `is_whole`: no more text follows.
PythonEscape ReadPythonEscape(std::string_view text, bool is_whole);

// Returns a literal of Python's as JSON text: strings, numbers, lists, tuples,
// sets, dicts, True, False and None, as ast.literal_eval and json.dumps make
// it. Also takes what models write: JSON's words, leading zeros, control
// characters in strings, and quotes within strings, which end one only before
// what follows a listed string. Returns nothing for other texts.
std::optional<std::string> PythonLiteralAsJson(std::string_view text);

// Returns whether a quote within a list or dict of Python's ends its string, by
// the text behind it: models write apostrophes without a backslash.
bool EndsListedText(std::string_view behind);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_OUTPUT_PYTHON_LITERAL_H_
