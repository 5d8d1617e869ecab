#ifndef SLUICE_COMMON_TEXT_ADDED_TOKENS_H_
#define SLUICE_COMMON_TEXT_ADDED_TOKENS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/core/ids.h"

namespace sluice {

// A token that is cut out of the text before anything else, as a file beside
// the vocabulary names it. A value.
struct AddedToken {
  std::string content;
  std::optional<TokenId> id;  // nothing: the vocabulary's
  bool special = false;
  bool lstrip = false;
  bool rstrip = false;
  bool single_word = false;
  bool normalized = false;
};

// The files beside a vocabulary, {} for an absent one.
struct TokenizerConfigs {
  const Json& config;        // tokenizer_config.json
  const Json& special_map;   // special_tokens_map.json
  const Json& added_tokens;  // added_tokens.json
};

// Returns the tokens that the files name, by rising id: those of
// added_tokens_decoder, else of added_tokens.json, and the special tokens,
// which the vocabulary has. Entries of another form are left out.
std::vector<AddedToken> AddedTokensIn(const TokenizerConfigs& files);

// Returns the text of the tokenizer.json with those of `tokens` that are none
// of its added tokens; the same text if there are none. A token that the
// vocabulary has keeps the vocabulary's id, a token without an id that the
// vocabulary lacks is left out, as in transformers. INVALID_ARGUMENT for an id
// that another token has, and for a text that is no tokenizer.json.
StatusOr<std::string> WithAddedTokens(std::string tokenizer_json,
                                      const std::vector<AddedToken>& tokens);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_ADDED_TOKENS_H_
