#include "common/dialects/openai/tool_fields.h"

#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/serving/chat_parts.h"
#include "common/serving/request_limits.h"
#include "common/serving/tool_fields.h"

namespace sluice::openai {
namespace {

// Returns the error in `function`, with the member's name; empty: none.
std::string FunctionComplaint(const Json& function) {
  if (!function.is_object()) {
    return Cat(" must be an object, got ", serving::Describe(function));
  }
  serving::FieldReader in_function(function);
  const auto name = in_function.String("name");
  if (!name || !serving::IsToolName(*name)) {
    return Cat(".name must be 1 to ", serving::kMaxToolNameBytes,
               " of A-Z a-z 0-9 _ . : / -");
  }
  in_function.String("description");
  in_function.Bool("strict");
  const Json* parameters = in_function.Find("parameters");
  if (!in_function.status().ok()) {
    return "." + std::string(Message(in_function.status()));
  }
  if (parameters != nullptr && !parameters->is_object()) {
    return Cat(".parameters must be a JSON schema, an object, got ",
               serving::Describe(*parameters));
  }
  return "";
}

// Returns the error in `tool`, with the member's name; empty: none.
std::string Complaint(const Json& tool) {
  if (!tool.is_object())
    return Cat(" must be an object, got ", serving::Describe(tool));
  serving::FieldReader of_tool(tool);
  if (of_tool.String("type").value_or("") != "function") {
    return ".type must be \"function\": other tools are not built";
  }
  const Json* function = of_tool.Find("function");
  if (function == nullptr || !function->is_object()) {
    return ".function must be an object";
  }
  const std::string complaint = FunctionComplaint(*function);
  return complaint.empty() ? "" : ".function" + complaint;
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

Json ReadTools(serving::FieldReader& in) {
  const Json* tools = serving::FindTools(in, "tools");
  if (tools == nullptr || tools->empty()) return nullptr;
  Json out = Json::array();
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string complaint = Complaint((*tools)[i]);
    if (!complaint.empty()) {
      in.Refuse("tools", "tools[", i, "]", complaint);
      return nullptr;
    }
    out.push_back(WithoutNulls((*tools)[i]));
  }
  return out;
}

// Reads `functions`, tools in their older form.
void ReadFunctions(serving::FieldReader& in, serving::ToolFields& out) {
  const Json* functions = serving::FindTools(in, "functions");
  if (functions == nullptr || functions->empty()) return;
  if (!out.tools.is_null()) {
    in.Refuse("functions",
              "cannot go with tools, of which they are the older "
              "form");
    return;
  }
  Json tools = Json::array();
  for (size_t i = 0; i < functions->size(); ++i) {
    const std::string complaint = FunctionComplaint((*functions)[i]);
    if (!complaint.empty()) {
      in.Refuse("functions", "functions[", i, "]", complaint);
      return;
    }
    Json tool = MakeObject(2);
    AppendMember(tool, "type", "function");
    AppendMember(tool, "function", WithoutNulls((*functions)[i]));
    tools.push_back(std::move(tool));
  }
  out.tools = std::move(tools);
  out.as_functions = true;
}

// Adds the function that `choice`, {"type": "function", "function": {"name"}},
// names. `place` is in errors.
void AllowNamed(serving::FieldReader& in, std::string_view place,
                const Json& choice, serving::ToolFields& out) {
  const Json* name = nullptr;
  if (choice.is_object() && choice.contains("type") &&
      choice["type"] == "function" && choice.contains("function") &&
      choice["function"].is_object() && choice["function"].contains("name")) {
    name = &choice["function"]["name"];
  }
  if (name == nullptr || !name->is_string()) {
    in.Refuse("tool_choice", place,
              "must be {\"type\": \"function\", \"function\": {\"name\": ",
              "..}}, got ", serving::Describe(choice));
    return;
  }
  const auto& text = name->get_ref<const std::string&>();
  if (!serving::HasTool(out.tools, text)) {
    in.Refuse("tool_choice", place, "names a function that is not in tools",
              serving::IsToolName(text) ? Cat(": ", text) : "");
    return;
  }
  serving::Allow(text, out);
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}.
void ReadAllowedTools(serving::FieldReader& in, const Json& choice,
                      serving::ToolFields& out) {
  const auto found = choice.find("allowed_tools");
  if (found == choice.end() || !found->is_object()) {
    in.Refuse("tool_choice", "allowed_tools must be an object with mode and ",
              "tools");
    return;
  }
  serving::FieldReader part(*found, "tool_choice.allowed_tools.");
  const Json* tools = serving::ReadAllowedTools(part, "", out);
  in.Keep(part.status());
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    AllowNamed(in, Cat("allowed_tools.tools[", i, "] "), (*tools)[i], out);
  }
}

// Reads tool_choice, behind the tools; "none" takes these away.
void ReadToolChoice(serving::FieldReader& in, serving::ToolFields& out) {
  const Json* choice = serving::ReadChoiceWord(in, out);
  if (choice == nullptr) return;
  if (out.tools.is_null()) {
    in.Refuse("tool_choice", "needs tools, and there are none");
  } else if (choice->contains("type") && (*choice)["type"] == "allowed_tools") {
    ReadAllowedTools(in, *choice, out);
  } else {
    out.choice = serving::ToolChoice::kRequired;
    out.parallel = false;  // OpenAI's answer is one call
    AllowNamed(in, "", *choice, out);
  }
}

// Reads function_call, tool_choice's older form, for functions alone.
void ReadFunctionChoice(serving::FieldReader& in, serving::ToolFields& out) {
  const Json* choice = in.Find("function_call");
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    if (out.as_functions) out.tools = nullptr;
    return;
  }
  const bool named = choice->is_object() && choice->contains("name") &&
                     (*choice)["name"].is_string();
  if (!named) {
    in.Refuse("function_call",
              "must be \"auto\", \"none\" or {\"name\": ..}, got ",
              serving::Describe(*choice));
    return;
  }
  const auto& name = (*choice)["name"].get_ref<const std::string&>();
  if (!out.as_functions || !serving::HasTool(out.tools, name)) {
    in.Refuse("function_call", "names a function that is not in functions",
              serving::IsToolName(name) ? Cat(": ", name) : "");
    return;
  }
  out.choice = serving::ToolChoice::kRequired;
  out.allowed = {name};
}

}  // namespace

serving::ToolFields ReadToolFields(serving::FieldReader& in) {
  serving::ToolFields out;
  out.tools = ReadTools(in);
  ReadFunctions(in, out);
  ReadToolChoice(in, out);
  ReadFunctionChoice(in, out);
  for (const Json& tool : out.tools) {
    const Json& function = tool["function"];
    const auto strict = function.find("strict");
    out.strict.push_back(strict == function.end()
                             ? std::nullopt
                             : std::optional<bool>(strict->get<bool>()));
  }
  out.parallel = in.Bool("parallel_tool_calls").value_or(out.parallel);
  if (out.as_functions) out.parallel = false;  // an answer has one call's place
  return out;
}

}  // namespace sluice::openai
