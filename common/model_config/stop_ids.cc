#include "common/model_config/stop_ids.h"

#include <cstdint>
#include <set>

#include "common/base/json.h"

namespace sluice {

StatusOr<std::vector<TokenId>> EosTokenIds(const Json& config,
                                           int64_t vocab_size) {
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) return std::vector<TokenId>();
  const Json ids = found->is_array() ? *found : Json::array({*found});
  std::vector<TokenId> parsed;
  for (const Json& id : ids) {
    if (!id.is_number_integer()) {
      return InvalidArgument("eos_token_id is ", id.type_name(),
                             ", expected an integer or a list of them");
    }
    // Unsigned numbers beyond int64's range become negative, and are refused.
    const auto value = id.get<int64_t>();
    if (value < 0 || value >= vocab_size) {
      return InvalidArgument("eos_token_id ", DumpJson(id),
                             " is not in the vocabulary of ", vocab_size);
    }
    parsed.push_back(static_cast<TokenId>(value));
  }
  return parsed;
}

StatusOr<std::vector<TokenId>> StopIds(const Json& config,
                                       const Json& generation_config,
                                       int vocab_size) {
  std::set<TokenId> all;
  for (const Json* source : {&config, &generation_config}) {
    SLUICE_ASSIGN_OR_RETURN(const auto ids, EosTokenIds(*source, vocab_size));
    all.insert(ids.begin(), ids.end());
  }
  return std::vector<TokenId>(all.begin(), all.end());
}

}  // namespace sluice
