#ifndef SLUICE_COMMON_OPENAI_GENERIC_TOOLS_H_
#define SLUICE_COMMON_OPENAI_GENERIC_TOOLS_H_

#include "common/base/json_fwd.h"

namespace sluice::openai {

// Returns a chat for a template that knows no tools: `tools` (of ToolFields, or
// null) and the shape of a call stand behind the text of a system message,
// calls of the assistant and their results stand in the text of messages, as
// <tool_call> and <tool_response>. Results next to each other, and what the
// user says behind them, are one message of the user. `messages`: of a
// ChatRequest.
Json WithToolsAsText(Json messages, const Json& tools);

// Returns a chat for a template that shows the member "tools" of a system
// message, a JSON text of functions, and no calls (Phi-4): those of the
// assistant stand in the text of messages, as the model writes them.
Json WithToolsInSystem(Json messages, const Json& tools);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_GENERIC_TOOLS_H_
