#ifndef SLUICE_COMMON_DIALECTS_OPENAI_COMMON_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_COMMON_FIELDS_H_

#include <cstddef>

#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::openai {

inline constexpr serving::FieldNames kChatNames;
inline constexpr serving::FieldNames kCompletionNames = {
    .prompt = "prompt", .top_logprobs = "logprobs"};

// Reads the fields that chat and completions share. Errors stay in `in`; token
// ids are below `vocab_size`.
serving::GenerationFields ReadCommonFields(serving::FieldReader& in,
                                           int vocab_size,
                                           const serving::FieldNames& names);

// Checks logprob_token_ids, after logprobs is read, and drops those that stand
// there twice. Errors stay in `in`.
void CheckLogprobTokenIds(serving::FieldReader& in,
                          serving::GenerationFields& fields);

// Checks fields against one another, after all are read. Errors stay in `in`.
// `num_prompts` is the request's.
void CheckTogether(serving::FieldReader& in,
                   const serving::GenerationFields& fields, size_t num_prompts);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_COMMON_FIELDS_H_
