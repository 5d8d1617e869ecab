#include "common/text/detokenizer.h"

#include <algorithm>

#include "common/text/tokenizer.h"

namespace sluice {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                         std::span<const TokenId> prompt_tail,
                         std::span<const TokenId> shown)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      shown_(shown),
      strip_space_(tokenizer.vocabulary().strip_leading_space()) {
  for (const TokenId id : prompt_tail) {
    if (!shown_.empty() || !IsSkipped(id)) Next(id);
  }
}

std::string Detokenizer::Push(TokenId id) {
  broke_off_ = false;
  if (IsSkipped(id)) return "";
  const std::string bytes = Next(id);
  broke_off_ = stream_.BreaksOff(bytes);
  return stream_.Push(bytes);
}

std::string Detokenizer::Finish() { return stream_.Finish(); }

bool Detokenizer::IsSkipped(TokenId id) const {
  return skip_special_tokens_ && tokenizer_.vocabulary().IsSpecial(id) &&
         !std::binary_search(shown_.begin(), shown_.end(), id);
}

std::string Detokenizer::Next(TokenId id) {
  const Vocabulary& vocabulary = tokenizer_.vocabulary();
  if (!vocabulary.Contains(id)) return "";
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
