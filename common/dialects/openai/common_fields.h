#ifndef SLUICE_COMMON_DIALECTS_OPENAI_COMMON_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_COMMON_FIELDS_H_

#include <cstddef>

#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::openai {

inline constexpr serving::FieldNames kCompletionNames = {
    .prompt = "prompt",
    .truncate_prompt = "truncate_prompt_tokens",
    .max_tokens = "max_tokens",
    .min_tokens = "min_tokens",
    .stop = "stop",
    .n = "n",
    .echo = "echo",
    .logprobs = "logprobs",
    .top_logprobs = "logprobs",
    .prompt_logprobs = "prompt_logprobs",
    .stream = "stream",
    .tools = "tools",
    .tool_calls = "tool_calls",
    .allowed_tools = "allowed_tools",
    .template_arguments = "chat_template_kwargs",
    .continues_message = "continue_final_message"};
inline constexpr serving::FieldNames kChatNames = [] {
  serving::FieldNames names = kCompletionNames;
  names.prompt = "messages";
  names.top_logprobs = "top_logprobs";
  return names;
}();

// Reads the fields that chat and completions share. Errors stay in `in`; token
// ids are below `vocab_size`.
serving::GenerationFields ReadCommonFields(serving::FieldReader& in,
                                           int vocab_size,
                                           const serving::FieldNames& names);

// Checks fields against one another, after all are read. Errors stay in `in`.
// `num_prompts` is the request's.
void CheckTogether(serving::FieldReader& in,
                   const serving::GenerationFields& fields, size_t num_prompts);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_COMMON_FIELDS_H_
