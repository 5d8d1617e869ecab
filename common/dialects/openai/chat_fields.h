#ifndef SLUICE_COMMON_DIALECTS_OPENAI_CHAT_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_CHAT_FIELDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::openai {

// The variables that chat_template_kwargs cannot set: the server's own, and the
// template engine's functions.
inline constexpr std::string_view kOwnNames[] = {"messages",
                                                 "tools",
                                                 "documents",
                                                 "add_generation_prompt",
                                                 "continue_final_message",
                                                 "bos_token",
                                                 "eos_token",
                                                 "pad_token",
                                                 "unk_token",
                                                 "raise_exception",
                                                 "strftime_now",
                                                 "namespace",
                                                 "range",
                                                 "dict"};

// Reads the chat template's options beside the messages: add_generation_prompt,
// continue_final_message, add_special_tokens, chat_template_kwargs, and what
// says whether and how much the model thinks. Errors stay in `in`.
RenderOptions ReadTemplateFields(serving::FieldReader& in);

// Returns the names in chat_template_kwargs, as the client gave them.
std::vector<std::string> ReadArgumentNames(serving::FieldReader& in);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_CHAT_FIELDS_H_
