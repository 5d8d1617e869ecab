#ifndef SLUICE_COMMON_TOOLS_CHAT_TERMINAL_TEXT_H_
#define SLUICE_COMMON_TOOLS_CHAT_TERMINAL_TEXT_H_

#include <string>
#include <string_view>

namespace sluice::chat {

// Returns `text` without the characters that a terminal obeys: C0 but newline
// and tab, DEL, and C1. Invalid UTF-8 becomes U+FFFD.
std::string WithoutControls(std::string_view text);

// Returns the columns of a terminal that a character takes: 0, 1 or 2. A
// control character takes 0.
int DisplayWidth(char32_t character);

// Returns the sum over the characters of valid UTF-8.
int DisplayWidth(std::string_view text);

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_TERMINAL_TEXT_H_
