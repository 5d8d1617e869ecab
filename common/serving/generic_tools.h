#ifndef SLUICE_COMMON_SERVING_GENERIC_TOOLS_H_
#define SLUICE_COMMON_SERVING_GENERIC_TOOLS_H_

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/text/stand_ins.h"

namespace sluice::serving {

// Returns a chat for a template that knows no tools: `tools` (of ToolFields, or
// null) and the shape of a call stand behind the text of a system message,
// calls of the assistant and their results stand in the text of messages, as
// <tool_call> and <tool_response>. Results next to each other, and what the
// user says behind them, are one message of the user. `messages`: of a
// ChatRequest.
Json WithToolsAsText(Json messages, const Json& tools);

// Returns a chat for a template that shows the member "tools" of a system
// message, a JSON text of functions, and no calls (Phi-4): those of the
// assistant stand in the text of messages, as the model writes them, between
// words of `marks`, which become its tokens.
Json WithToolsInSystem(Json messages, const Json& tools, const StandIns& marks);

// Returns the stand-ins of the marks around such calls, none of them in
// `messages`; nothing for messages without calls.
StatusOr<StandIns> MarksOfCalls(const Json& messages);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_GENERIC_TOOLS_H_
