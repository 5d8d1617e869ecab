#ifndef SLUICE_COMMON_OPENAI_CHAT_FIELDS_H_
#define SLUICE_COMMON_OPENAI_CHAT_FIELDS_H_

#include "common/base/json_fwd.h"
#include "common/openai/fields.h"
#include "common/openai/request.h"

namespace sluice::openai {

// Reads the chat template's options beside the messages: add_generation_prompt,
// continue_final_message, add_special_tokens, reasoning_effort and the allowed
// members of chat_template_kwargs. Errors stay in `in`.
RenderOptions ReadTemplateFields(FieldReader& in);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_CHAT_FIELDS_H_
