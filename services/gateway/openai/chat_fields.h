#ifndef SLUICE_SERVICES_GATEWAY_OPENAI_CHAT_FIELDS_H_
#define SLUICE_SERVICES_GATEWAY_OPENAI_CHAT_FIELDS_H_

#include "common/base/json_fwd.h"
#include "services/gateway/openai/fields.h"
#include "services/gateway/openai/request.h"

namespace sluice::gateway {

// What goes to the chat template beside the messages: add_generation_prompt,
// continue_final_message, add_special_tokens, reasoning_effort and the
// allowed members of chat_template_kwargs. Complaints stay in `in`.
TemplateFields ReadTemplateFields(FieldReader& in);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_OPENAI_CHAT_FIELDS_H_
