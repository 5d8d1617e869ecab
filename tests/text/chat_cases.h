#ifndef SLUICE_TESTS_TEXT_CHAT_CASES_H_
#define SLUICE_TESTS_TEXT_CHAT_CASES_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"

namespace sluice::testing {

// A chat of tests/text/chats/chats.json under a published template, and the
// SHA-256 of what the reference renders: tests/text/chats/make.py --show
// prints the text.
struct ChatCase {
  std::string source;  // the template's file, or the tokenizer's folder
  std::string chat;
  Json messages;
  Json tools;  // null: none
  Json kwargs;
  bool add_generation_prompt = true;
  std::string sha256;
  std::vector<int32_t> ids;  // of a tokenizer's case
};

// The renderings of templates, and those of whole models with their ids.
std::vector<ChatCase> ChatRenderings();
std::vector<ChatCase> ChatsWithIds();

// In hexadecimal.
std::string Sha256Of(std::string_view text);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TEXT_CHAT_CASES_H_
