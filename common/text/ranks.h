#ifndef SLUICE_COMMON_TEXT_RANKS_H_
#define SLUICE_COMMON_TEXT_RANKS_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/text/vocabulary_spec.h"

namespace sluice {

// Parts of tiktoken's vocabularies: a token's bytes in base64, its rank the
// order in which tokens are merged.

// The limits of a file: ranks, and bytes of a token.
inline constexpr size_t kMaxRanks = size_t{1} << 21;
inline constexpr size_t kMaxRankBytes = 1024;

// False if `text` is no base64.
bool DecodeBase64(std::string_view text, std::string& bytes);

// Returns every cut of a token in two tokens, by the token's rank, in GPT-2's
// byte alphabet. `tokens`: their bytes, by rank.
std::vector<Merge> MergesFromRanks(const std::vector<std::string>& tokens);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_RANKS_H_
