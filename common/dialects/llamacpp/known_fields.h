#ifndef SLUICE_COMMON_DIALECTS_LLAMACPP_KNOWN_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_LLAMACPP_KNOWN_FIELDS_H_

#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"

namespace sluice::llamacpp {

enum class FieldUse { kBuilt, kIgnored, kUnbuilt };

struct KnownField {
  std::string_view name;
  FieldUse use = FieldUse::kBuilt;
  // Of a field that is not built: the values that change nothing, a JSON array.
  std::string_view neutral = {};
  bool infill_alone = false;
};

// Returns every known field; LLAMACPP.md has a row of each.
std::vector<KnownField> KnownFields();

// INVALID_ARGUMENT (unsupported_parameter) for a field that is not built,
// unless its value changes nothing.
Status RefuseUnbuiltFields(const Json& body);
// INVALID_ARGUMENT (unknown_parameter) for a field that is not known.
Status RefuseUnknownFields(const Json& body, bool infill);

}  // namespace sluice::llamacpp

#endif  // SLUICE_COMMON_DIALECTS_LLAMACPP_KNOWN_FIELDS_H_
