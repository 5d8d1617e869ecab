#ifndef SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_
#define SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_

#include "common/openai/fields.h"
#include "common/openai/request.h"

namespace sluice::gateway {

// The fields that mean the same for chat and completions. Complaints stay in
// `in`; token ids are below `vocab_size`.
GenerationFields ReadCommonFields(FieldReader& in, int vocab_size);

// Complaints about fields that do not go with one another, once all are read.
// `num_prompts` of the request.
void CheckTogether(FieldReader& in, const GenerationFields& fields,
                   size_t num_prompts);

}  // namespace sluice::gateway

#endif  // SLUICE_COMMON_OPENAI_COMMON_FIELDS_H_
