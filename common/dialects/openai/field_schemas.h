#ifndef SLUICE_COMMON_DIALECTS_OPENAI_FIELD_SCHEMAS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_FIELD_SCHEMAS_H_

#include <cstddef>

#include "common/base/json_fwd.h"

namespace sluice::openai {

struct FieldSchemaOptions {
  bool chat = true;      // else completions
  bool strict = false;   // unknown fields are refused
  size_t max_stops = 0;  // the most stop strings
};

// Returns the JSON Schema (2020-12) of a body: each field of KnownFields() with
// its type, range and, where it has one, default. The schema takes every body
// that the parsers take, apart from members of messages that a message's role
// does not read. It also takes some that the parsers refuse: fields that do not
// go together, ids beyond the vocabulary, what is wrong inside tools and
// grammars.
Json BodySchema(const FieldSchemaOptions& options);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_FIELD_SCHEMAS_H_
