#ifndef SLUICE_COMMON_BASE_JSON_MEMBER_H_
#define SLUICE_COMMON_BASE_JSON_MEMBER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/json.h"

namespace sluice {

// Returns the member `key` of an object; null if it is absent or null, or
// `json` is no object.
inline const Json* FindMember(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

// Returns the text of a member; empty if it is absent or no text.
inline std::string FindText(const Json& json, const char* key) {
  const Json* found = FindMember(json, key);
  return found != nullptr && found->is_string() ? found->get<std::string>()
                                                : std::string();
}

// Returns the integer of a member; nothing if it is absent or no integer.
inline std::optional<int64_t> FindInt(const Json& json, const char* key) {
  const Json* found = FindMember(json, key);
  if (found == nullptr || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

// Returns the elements of a list; none if it is absent or no list.
inline const Json::array_t& FindList(const Json& json, const char* key) {
  static const Json::array_t none;
  const Json* found = FindMember(json, key);
  return found != nullptr && found->is_array()
             ? found->get_ref<const Json::array_t&>()
             : none;
}

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_JSON_MEMBER_H_
