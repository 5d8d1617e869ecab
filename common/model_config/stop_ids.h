#ifndef SLUICE_COMMON_MODEL_CONFIG_STOP_IDS_H_
#define SLUICE_COMMON_MODEL_CONFIG_STOP_IDS_H_

#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/core/ids.h"

namespace sluice {

// Returns the tokens that end a generation, sorted: the union of eos_token_id
// (a number, a list or null) in config.json and generation_config.json. A
// GGUF's config has its ids. INVALID_ARGUMENT for an id outside [0,
// vocab_size).
StatusOr<std::vector<TokenId>> StopIds(const Json& config,
                                       const Json& generation_config,
                                       int vocab_size);

// Returns eos_token_id of one of the two files.
StatusOr<std::vector<TokenId>> EosTokenIds(const Json& config,
                                           int64_t vocab_size);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_STOP_IDS_H_
