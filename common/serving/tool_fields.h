#ifndef SLUICE_COMMON_SERVING_TOOL_FIELDS_H_
#define SLUICE_COMMON_SERVING_TOOL_FIELDS_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::serving {

// What bodies of several dialects say of tools.

// A function as its client describes it.
struct FunctionFields {
  std::string name;
  Json description;  // null: none
  Json parameters;   // an object; null: none
  std::optional<bool> strict;
};

// Returns the list `name` of at most kMaxTools entries; null: there is none, or
// an error in `in`.
const Json* FindTools(FieldReader& in, std::string_view name);

// Reads "name", "description", "strict" and the schema of the arguments, member
// `schema`. Errors stay in `part`, the reader of the function.
FunctionFields ReadFunction(FieldReader& part, std::string_view schema);

// Reads tool_choice of OpenAI's APIs, behind the tools, as far as it is a word:
// "none" takes the tools away. Returns a choice that is an object, for the
// dialect; else null, or an error in `in`.
const Json* ReadChoiceWord(FieldReader& in, ToolFields& out);

// Reads {"mode", "tools"} of a choice among allowed tools; `otherwise` is the
// mode where there is none, empty: it is refused. Returns the tools, 1 to
// kMaxTools; null: an error in `part`.
const Json* ReadAllowedTools(FieldReader& part, std::string_view otherwise,
                             ToolFields& out);

// Adds a function to those that may be called, once.
void Allow(std::string_view name, ToolFields& out);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_TOOL_FIELDS_H_
