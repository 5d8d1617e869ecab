#ifndef SLUICE_COMMON_MODEL_CONFIG_STOP_IDS_H_
#define SLUICE_COMMON_MODEL_CONFIG_STOP_IDS_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/core/ids.h"

namespace sluice {

// Returns the tokens that end a generation, sorted: the union of eos_token_id
// (a number, a list or null) in config.json and generation_config.json. A
// GGUF's config has its ids. What is no id of a token is none: -1 and other
// numbers outside [0, vocab_size), and values that are no integers.
std::vector<TokenId> StopIds(const Json& config, const Json& generation_config,
                             int vocab_size);

// Returns eos_token_id of one of the two files.
std::vector<TokenId> EosTokenIds(const Json& config, int64_t vocab_size);

// Returns the id of a token that `value` is; nothing for another value.
std::optional<TokenId> TokenIdOf(const Json& value, int64_t vocab_size);

// Returns what stands under eos_token_id and bos_token_id and is no token, for
// people: "eos_token_id 300 is not in the vocabulary of 256". -1 and null stand
// for none and are left out.
std::vector<std::string> IdsOfNoToken(const Json& config, int64_t vocab_size);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_STOP_IDS_H_
