#include "common/dialects/messages/tools.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/serving/chat_parts.h"
#include "common/serving/request_fields.h"
#include "common/serving/tool_fields.h"

namespace sluice::messages {
namespace {

struct Choice {
  std::string type = "auto";
  std::string name;  // of type "tool"
  bool parallel = true;
};

Choice ReadChoice(serving::FieldReader& in) {
  Choice out;
  const Json* choice = serving::FindObject(in, "tool_choice");
  if (choice == nullptr) return out;
  serving::FieldReader part(*choice, "tool_choice.");
  out.type = part.String("type").value_or("");
  out.parallel = !part.Bool("disable_parallel_tool_use").value_or(false);
  const bool known = out.type == "auto" || out.type == "any" ||
                     out.type == "tool" || out.type == "none";
  if (!known) {
    part.Refuse("type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
  }
  if (out.type == "tool") {
    const auto name = part.String("name");
    if (!name) part.Refuse("name", "Field required");
    out.name = name.value_or("");
  }
  in.Keep(part.status());
  return out;
}

// Returns `schema`, which is an object's, with its type.
Json WithType(const Json& schema) {
  if (schema.contains("type")) return schema;
  Json out = MakeObject(schema.size() + 1);
  AppendMember(out, "type", "object");
  for (const auto& [name, value] : schema.get_ref<const Json::object_t&>()) {
    AppendMember(out, name, value);
  }
  return out;
}

// A tool of the body that the client runs by a schema of its own.
struct Tool {
  Json shown;
  bool is_deferred = false;
  std::optional<bool> strict;
};

// Returns nothing for a tool of another kind, or an error in `in`.
std::optional<Tool> ReadTool(serving::FieldReader& in, const Json& tool,
                             const std::string& at) {
  if (!tool.is_object()) {
    in.Refuse(at, "must be an object, got ", serving::Describe(tool));
    return std::nullopt;
  }
  serving::FieldReader part(tool, Cat(at, "."));
  Tool out;
  const std::string type = part.String("type").value_or("custom");
  if (part.status().ok() && type != "custom") return std::nullopt;
  serving::FunctionFields read = serving::ReadFunction(part, "input_schema");
  out.is_deferred = part.Bool("defer_loading").value_or(false);
  out.strict = read.strict;
  in.Keep(part.status());
  if (!in.status().ok()) return std::nullopt;
  if (!read.parameters.is_null()) read.parameters = WithType(read.parameters);
  out.shown =
      serving::MakeTool(std::move(read.name), std::move(read.description),
                        std::move(read.parameters));
  return out;
}

void Choose(serving::FieldReader& in, const Choice& choice,
            serving::ToolFields& out) {
  out.parallel = choice.parallel;
  if (choice.type == "auto") return;
  if (choice.type == "none") {
    out.tools = nullptr;
    out.strict.clear();
    return;
  }
  out.choice = serving::ToolChoice::kRequired;
  if (choice.type == "any") {
    if (out.tools.is_null()) {
      in.Refuse("tool_choice", "needs a tool of the client, and there is none");
    }
    return;
  }
  if (!serving::HasTool(out.tools, choice.name)) {
    in.Refuse("tool_choice.name", "names no tool that the client runs",
              serving::IsToolName(choice.name) ? Cat(": ", choice.name) : "");
  }
  out.allowed = {choice.name};
}

}  // namespace

Tools ReadTools(serving::FieldReader& in,
                const std::set<std::string, std::less<>>& named) {
  Tools out;
  const Choice choice = ReadChoice(in);
  const Json* tools = serving::FindTools(in, "tools");
  if (!in.status().ok()) return out;
  Json shown = Json::array();
  std::set<std::string, std::less<>> names;
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    auto tool = ReadTool(in, (*tools)[i], Cat("tools[", i, "]"));
    out.by_place.strict.push_back(tool ? tool->strict : std::nullopt);
    if (!tool) continue;
    const auto& name =
        tool->shown["function"]["name"].get_ref<const std::string&>();
    if (!names.insert(name).second) {
      in.Refuse("tools", "Tool names must be unique");
      return out;
    }
    if (tool->is_deferred && !named.contains(name) && name != choice.name) {
      continue;
    }
    shown.push_back(std::move(tool->shown));
    out.fields.strict.push_back(tool->strict);
  }
  if (!shown.empty()) out.fields.tools = std::move(shown);
  Choose(in, choice, out.fields);
  return out;
}

}  // namespace sluice::messages
