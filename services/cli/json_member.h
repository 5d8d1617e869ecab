#ifndef SLUICE_SERVICES_CLI_JSON_MEMBER_H_
#define SLUICE_SERVICES_CLI_JSON_MEMBER_H_

#include "common/base/json.h"

namespace sluice::cli {

// The member `key` of an object; null if it is not there, is null itself, or
// `json` is no object.
inline const Json* FindMember(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_JSON_MEMBER_H_
