#ifndef SLUICE_COMMON_DIALECTS_OPENAI_KNOWN_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_KNOWN_FIELDS_H_

#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/serving/request_fields.h"

namespace sluice::openai {

using serving::FieldUse;

// A field of /v1/chat/completions, /v1/completions, or both.
struct KnownField {
  std::string_view name;
  bool chat = true;
  bool completions = true;
  FieldUse use = FieldUse::kBuilt;
  // Of kUnbuilt: a JSON array of the values, besides null, that change nothing.
  std::string_view neutral = {};
};

// Returns every field that the parsers know. services/gateway/API.md has a row
// for each; tests compare both with the parsers.
std::vector<KnownField> KnownFields();

// INVALID_ARGUMENT names the first known but unbuilt field of `object` with a
// value that would change the answer.
Status RefuseUnbuiltFields(const Json& object, bool chat);

// INVALID_ARGUMENT names the first unknown field of `object`.
Status RefuseUnknownFields(const Json& object, bool chat);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_KNOWN_FIELDS_H_
