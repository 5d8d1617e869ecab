#include "tests/text/chat_cases.h"

#include <openssl/sha.h>

#include <map>

#include "tests/testing/test_data.h"

namespace sluice::testing {
namespace {

std::vector<ChatCase> ReadCases(const char* key, const char* source) {
  const Json all = *ParseJson(ReadFileOrDie("tests/text/chats/chats.json"),
                              {.max_bytes = size_t{1} << 24});
  std::map<std::string, Json> chats;
  for (const Json& chat : all["chats"]) chats[chat["name"]] = chat;
  std::vector<ChatCase> cases;
  for (const Json& one : all[key]) {
    const Json& chat = chats.at(one["chat"]);
    cases.push_back(
        {.source = one[source],
         .chat = one["chat"],
         .messages = chat["messages"],
         .tools = chat["tools"],
         .kwargs = one["kwargs"],
         .add_generation_prompt = one.value("add_generation_prompt", true),
         .sha256 = one["sha256"],
         .ids = one.value("ids", std::vector<int32_t>())});
  }
  return cases;
}

}  // namespace

std::vector<ChatCase> ChatRenderings() {
  return ReadCases("renderings", "template");
}

std::vector<ChatCase> ChatsWithIds() { return ReadCases("ids", "tokenizer"); }

std::string Sha256Of(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest);
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace sluice::testing
