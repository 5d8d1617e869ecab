#ifndef SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_
#define SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_

#include <cstddef>

#include "common/openai/fields.h"
#include "common/openai/request.h"

namespace sluice::openai {

// Reads the fields that chat and completions share. Errors stay in `in`; token
// ids are below `vocab_size`.
GenerationFields ReadCommonFields(FieldReader& in, int vocab_size);

// Checks fields against one another, after all are read. Errors stay in `in`.
// `num_prompts` is the request's.
void CheckTogether(FieldReader& in, const GenerationFields& fields,
                   size_t num_prompts);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_
