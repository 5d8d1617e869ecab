#ifndef SLUICE_COMMON_OPENAI_TOOL_FIELDS_H_
#define SLUICE_COMMON_OPENAI_TOOL_FIELDS_H_

#include <string_view>

#include "common/base/json_fwd.h"
#include "common/openai/fields.h"
#include "common/openai/request.h"

namespace sluice::openai {

// Reads tools, tool_choice and parallel_tool_calls. Errors stay in `in`: also
// for a choice that needs tools without any, or names one that is not there.
ToolFields ReadToolFields(FieldReader& in);

// Returns whether `name` may be a function's: 1 to kMaxToolNameBytes of A-Z a-z
// 0-9 and _ . : / -, which is markup in no format of calls.
bool IsToolName(std::string_view name);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_TOOL_FIELDS_H_
