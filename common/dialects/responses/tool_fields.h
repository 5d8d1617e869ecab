#ifndef SLUICE_COMMON_DIALECTS_RESPONSES_TOOL_FIELDS_H_
#define SLUICE_COMMON_DIALECTS_RESPONSES_TOOL_FIELDS_H_

#include <map>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::responses {

// How a client calls a function that the model knows under a name of its own.
struct ToolName {
  std::string name;
  std::string name_space;  // empty: none
  bool is_custom = false;  // its input is a text
};

// By the name that the model is given.
using ToolNames = std::map<std::string, ToolName, std::less<>>;

// The member of the arguments that has a custom tool's input.
inline constexpr std::string_view kCustomInput = "input";

// The most bytes of a name that the model is given: two names of at most
// kMaxToolNameBytes, and what joins them.
inline constexpr size_t kMaxJoinedNameBytes = 260;

// Returns the name that the model is given.
std::string JoinedName(std::string_view name_space, std::string_view name);

// The fields tools, tool_choice and parallel_tool_calls.
struct Tools {
  serving::ToolFields fields;
  ToolNames names;  // of all tools, those that may not be called, too
  Json shown;       // the tools that are not left out, as an answer has them
  // Of each entry of the body's `tools`: it has a function that is held to its
  // schema. For HoldRounded.
  serving::ToolFields of_body;
};

// Hosted tools are left out. Errors stay in `in`.
Tools ReadTools(serving::FieldReader& in);

}  // namespace sluice::responses

#endif  // SLUICE_COMMON_DIALECTS_RESPONSES_TOOL_FIELDS_H_
