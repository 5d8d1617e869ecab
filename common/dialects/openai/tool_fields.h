#ifndef SLUICE_COMMON_DIALECTS_OPENAI_TOOL_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_TOOL_FIELDS_H_

#include "common/base/json_fwd.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::openai {

// Reads tools, tool_choice and parallel_tool_calls. Errors stay in `in`: also
// for a choice that needs tools without any, or names one that is not there.
serving::ToolFields ReadToolFields(serving::FieldReader& in);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_TOOL_FIELDS_H_
