#include "common/openai/tool_fields.h"

#include <algorithm>
#include <string>

#include "common/base/json.h"
#include "common/openai/parse.h"

namespace sluice::openai {
namespace {

// Returns the error in `tool`, with the member's name; empty: none.
std::string Complaint(const Json& tool) {
  if (!tool.is_object()) return Cat(" must be an object, got ", Describe(tool));
  FieldReader of_tool(tool);
  if (of_tool.String("type").value_or("") != "function") {
    return ".type must be \"function\": other tools are not built";
  }
  const Json* function = of_tool.Find("function");
  if (function == nullptr || !function->is_object()) {
    return ".function must be an object";
  }
  FieldReader of_function(*function);
  const auto name = of_function.String("name");
  if (!name || !IsToolName(*name)) {
    return Cat(".function.name must be 1 to ", kMaxToolNameBytes,
               " of A-Z a-z 0-9 _ . : / -");
  }
  of_function.String("description");
  of_function.Bool("strict");
  const Json* parameters = of_function.Find("parameters");
  if (!of_function.status().ok())
    return ".function." + std::string(Message(of_function.status()));
  if (parameters != nullptr && !parameters->is_object()) {
    return Cat(".function.parameters must be a JSON schema, an object, got ",
               Describe(*parameters));
  }
  return "";
}

// Returns a tool as templates expect it: without null members.
Json WithoutNulls(const Json& tool) {
  Json out = MakeObject(tool.size());
  for (const auto& [name, value] : tool.get_ref<const Json::object_t&>()) {
    if (value.is_null()) continue;
    const bool inner = name == "function" && value.is_object();
    AppendMember(out, name, inner ? WithoutNulls(value) : value);
  }
  return out;
}

Json ReadTools(FieldReader& in) {
  const Json* tools = in.Find("tools");
  if (tools == nullptr) return nullptr;
  if (!tools->is_array()) {
    in.Refuse("tools", "must be an array, got ", Describe(*tools));
    return nullptr;
  }
  if (tools->size() > kMaxTools) {
    in.Refuse("tools", "has ", tools->size(), " tools, limit ", kMaxTools);
    return nullptr;
  }
  Json out = Json::array();
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string complaint = Complaint((*tools)[i]);
    if (!complaint.empty()) {
      in.Refuse("tools", "tools[", i, "]", complaint);
      return nullptr;
    }
    out.push_back(WithoutNulls((*tools)[i]));
  }
  if (out.empty()) return nullptr;
  return out;
}

// Reads tool_choice. False: the model must not call.
bool ReadToolChoice(FieldReader& in) {
  const Json* choice = in.Find("tool_choice");
  if (choice == nullptr || *choice == "auto") return true;
  if (*choice == "none") return false;
  if (*choice == "required" || choice->is_object()) {
    in.Refuse("tool_choice",
              *choice == "required" ? "\"required\"" : "a named function",
              " needs constrained sampling, which is not built; give \"auto\" "
              "or \"none\"");
  } else {
    in.Refuse("tool_choice", "must be \"auto\" or \"none\", got ",
              Describe(*choice));
  }
  return false;
}

}  // namespace

bool IsToolName(std::string_view name) {
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == '_' || c == '.' || c == ':' ||
           c == '/' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxToolNameBytes &&
         std::all_of(name.begin(), name.end(), plain);
}

ToolFields ReadToolFields(FieldReader& in) {
  ToolFields out;
  out.tools = ReadTools(in);
  if (!ReadToolChoice(in)) out.tools = nullptr;
  out.parallel = in.Bool("parallel_tool_calls").value_or(true);
  return out;
}

}  // namespace sluice::openai
