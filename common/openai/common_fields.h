#ifndef SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_
#define SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/openai/fields.h"
#include "common/openai/request.h"

namespace sluice::openai {

// The fields that mean the same for chat and completions. Complaints stay in
// `in`; token ids are below `vocab_size`.
GenerationFields ReadCommonFields(FieldReader& in, int vocab_size);

// Field `name`, a number of tokens at most; -1 counts as absent.
std::optional<int64_t> ReadMaxTokens(FieldReader& in, std::string_view name);

// Complaints about fields that do not go with one another, once all are read.
// `num_prompts` of the request.
void CheckTogether(FieldReader& in, const GenerationFields& fields,
                   size_t num_prompts);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_
