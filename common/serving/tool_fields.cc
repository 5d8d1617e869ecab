#include "common/serving/tool_fields.h"

#include <algorithm>

#include "common/serving/chat_parts.h"
#include "common/serving/request_limits.h"

namespace sluice::serving {

const Json* FindTools(FieldReader& in, std::string_view name) {
  const Json* tools = in.Find(name);
  if (tools == nullptr) return nullptr;
  if (!tools->is_array()) {
    in.Refuse(name, "must be an array, got ", Describe(*tools));
    return nullptr;
  }
  if (tools->size() > kMaxTools) {
    in.Refuse(name, "has ", tools->size(), " ", name, ", limit ", kMaxTools);
    return nullptr;
  }
  return tools;
}

FunctionFields ReadFunction(FieldReader& part, std::string_view schema) {
  FunctionFields out;
  out.name = part.String("name").value_or("");
  if (!IsToolName(out.name)) {
    part.Refuse("name", "must be 1 to ", kMaxToolNameBytes,
                " of A-Z a-z 0-9 _ . : / -");
  }
  if (auto description = part.String("description")) {
    out.description = *std::move(description);
  }
  out.strict = part.Bool("strict");
  if (const Json* parameters = part.Find(schema)) {
    if (!parameters->is_object()) {
      part.Refuse(schema, "must be a JSON schema, an object, got ",
                  Describe(*parameters));
    }
    out.parameters = *parameters;
  }
  return out;
}

const Json* ReadChoiceWord(FieldReader& in, ToolFields& out) {
  const Json* choice = in.Find("tool_choice");
  if (choice == nullptr || choice->is_object()) return choice;
  if (*choice == "none") {
    out.tools = nullptr;
  } else if (*choice == "required") {
    if (out.tools.is_null()) {
      in.Refuse("tool_choice", "needs tools, and there are none");
    }
    out.choice = ToolChoice::kRequired;
  } else if (*choice != "auto") {
    in.Refuse("tool_choice",
              "must be \"auto\", \"none\", \"required\" or an object, got ",
              Describe(*choice));
  }
  return nullptr;
}

const Json* ReadAllowedTools(FieldReader& part, std::string_view otherwise,
                             ToolFields& out) {
  const std::string mode = part.String("mode").value_or(std::string(otherwise));
  const Json* tools = part.Find("tools");
  if (mode != "auto" && mode != "required") {
    part.Refuse("mode", "must be \"auto\" or \"required\"");
  }
  if (tools == nullptr || !tools->is_array() || tools->empty() ||
      tools->size() > kMaxTools) {
    part.Refuse("tools", "must be an array of 1 to ", kMaxTools, " tools");
  }
  if (!part.status().ok()) return nullptr;
  if (mode == "required") out.choice = ToolChoice::kRequired;
  return tools;
}

void Allow(std::string_view name, ToolFields& out) {
  const auto found = std::find(out.allowed.begin(), out.allowed.end(), name);
  if (found == out.allowed.end()) out.allowed.emplace_back(name);
}

}  // namespace sluice::serving
