#include "common/serving/chat_parts.h"

#include <algorithm>
#include <utility>

#include "common/serving/request_limits.h"

namespace sluice::serving {

Json MakeMessage(std::string_view role, std::string content) {
  // Role, content, name, reasoning, calls, and a member of a template's own.
  constexpr size_t kMaxMembers = 6;
  Json message = MakeObject(kMaxMembers);
  AppendMember(message, "role", std::string(role));
  AppendMember(message, "content", std::move(content));
  return message;
}

StatusOr<Json> ArgumentsToShow(const Json* arguments, JsonBudget& budget) {
  if (arguments == nullptr) return Json::object();
  if (!arguments->is_string()) return *arguments;
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) return Json::object();
  auto parsed =
      ParseJson(text, {.max_key_bytes = kMaxKeyBytes, .budget = &budget});
  if (parsed.ok() && parsed->is_object()) return parsed;
  if (!parsed.ok() && budget.values == 0) return parsed.status();
  Json made = Json::object();
  made["arguments"] = text;
  return made;
}

Json MakeCall(std::string name, Json arguments, std::string id) {
  Json function = MakeObject(2);
  AppendMember(function, "name", std::move(name));
  AppendMember(function, "arguments", std::move(arguments));
  Json call = MakeObject(3);
  AppendMember(call, "type", "function");
  AppendMember(call, "function", std::move(function));
  if (!id.empty()) AppendMember(call, "id", std::move(id));
  return call;
}

bool IsToolName(std::string_view name) {
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == '_' || c == '.' || c == ':' ||
           c == '/' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxToolNameBytes &&
         std::all_of(name.begin(), name.end(), plain);
}

Json MakeTool(std::string name, Json description, Json parameters) {
  Json function = MakeObject(3);
  AppendMember(function, "name", std::move(name));
  if (!description.is_null()) {
    AppendMember(function, "description", std::move(description));
  }
  if (!parameters.is_null()) {
    AppendMember(function, "parameters", std::move(parameters));
  }
  Json tool = MakeObject(2);
  AppendMember(tool, "type", "function");
  AppendMember(tool, "function", std::move(function));
  return tool;
}

bool HasTool(const Json& tools, std::string_view name) {
  return std::any_of(tools.begin(), tools.end(), [&](const Json& tool) {
    return tool["function"]["name"] == name;
  });
}

}  // namespace sluice::serving
