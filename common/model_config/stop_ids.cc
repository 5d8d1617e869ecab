#include "common/model_config/stop_ids.h"

#include <cstdint>
#include <limits>
#include <set>

#include "common/base/cat.h"
#include "common/base/json.h"

namespace sluice {
namespace {

// Returns the values under `key`: a number, a list or none.
Json ValuesAt(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return Json::array();
  return found->is_array() ? *found : Json::array({*found});
}

}  // namespace

std::optional<TokenId> TokenIdOf(const Json& value, int64_t vocab_size) {
  if (!value.is_number_integer()) return std::nullopt;
  // Unsigned numbers beyond int64's range become negative.
  const auto id = value.get<int64_t>();
  if (id < 0 || id >= vocab_size) return std::nullopt;
  return static_cast<TokenId>(id);
}

std::vector<TokenId> EosTokenIds(const Json& config, int64_t vocab_size) {
  std::vector<TokenId> ids;
  for (const Json& value : ValuesAt(config, "eos_token_id")) {
    if (const auto id = TokenIdOf(value, vocab_size)) ids.push_back(*id);
  }
  return ids;
}

std::vector<TokenId> StopIds(const Json& config, const Json& generation_config,
                             int vocab_size) {
  std::set<TokenId> all;
  for (const Json* source : {&config, &generation_config}) {
    const auto ids = EosTokenIds(*source, vocab_size);
    all.insert(ids.begin(), ids.end());
  }
  return std::vector<TokenId>(all.begin(), all.end());
}

std::vector<std::string> IdsOfNoToken(const Json& config, int64_t vocab_size) {
  std::vector<std::string> found;
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    for (const Json& value : ValuesAt(config, key)) {
      const bool is_none =
          value.is_null() || value == -1 ||
          value == int64_t{std::numeric_limits<uint32_t>::max()};
      if (is_none || TokenIdOf(value, vocab_size).has_value()) continue;
      found.push_back(Cat(key, " ", DumpJson(value).substr(0, 100),
                          " is not in the vocabulary of ", vocab_size));
    }
  }
  return found;
}

}  // namespace sluice
