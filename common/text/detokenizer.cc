#include "common/text/detokenizer.h"

#include "common/text/tokenizer.h"

namespace sluice {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                         std::span<const TokenId> prompt_tail)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      strip_space_(tokenizer.vocabulary().strip_leading_space()) {
  for (const TokenId id : prompt_tail) Next(id);
}

std::string Detokenizer::Push(TokenId id) { return stream_.Push(Next(id)); }

std::string Detokenizer::Finish() { return stream_.Finish(); }

std::string Detokenizer::Next(TokenId id) {
  const Vocabulary& vocabulary = tokenizer_.vocabulary();
  if (!vocabulary.Contains(id)) return "";
  if (skip_special_tokens_ && vocabulary.IsSpecial(id)) return "";
  std::string bytes;
  if (vocabulary.join_with_space() && !at_start_) bytes = " ";
  bytes += vocabulary.Bytes(id);
  at_start_ = false;
  if (strip_space_ && !bytes.empty()) {
    strip_space_ = false;
    if (bytes.front() == ' ') bytes.erase(0, 1);
  }
  return bytes;
}

}  // namespace sluice
