#include "common/text/chat_request.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/text/special_marks.h"

namespace sluice {
namespace {

template <size_t N>
bool Contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

// Words that templates compare with, and that spell no token by themselves.
constexpr std::string_view kRoles[] = {"system", "developer", "user",
                                       "assistant", "tool"};
constexpr std::string_view kTypes[] = {
    "text",   "function", "object",  "array", "string",
    "number", "integer",  "boolean", "null",  "image_url"};
constexpr std::string_view kKeys[] = {"role",
                                      "content",
                                      "name",
                                      "tool_calls",
                                      "tool_call_id",
                                      "id",
                                      "tools",
                                      "type",
                                      "function",
                                      "arguments",
                                      "text",
                                      "parameters",
                                      "description",
                                      "properties",
                                      "required",
                                      "enum",
                                      "items",
                                      "strict",
                                      "default",
                                      "title",
                                      "anyOf",
                                      "oneOf",
                                      "allOf",
                                      "reasoning",
                                      "reasoning_content",
                                      "thinking",
                                      "nullable",
                                      "minimum",
                                      "maximum",
                                      "format",
                                      "additionalProperties"};

bool IsFixed(std::string_view key, std::string_view value) {
  return (key == "role" && Contains(kRoles, value)) ||
         (key == "type" && Contains(kTypes, value));
}

Json Marked(const Json& value, std::string_view key, char32_t plane) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return IsFixed(key, text) ? text : MarkAll(text, plane);
  }
  if (value.is_array()) {
    Json made = Json::array();
    made.get_ref<Json::array_t&>().reserve(value.size());
    for (const Json& item : value) made.push_back(Marked(item, key, plane));
    return made;
  }
  if (value.is_object()) {
    // Marking keeps different names different.
    Json made = MakeObject(value.size());
    for (const auto& [name, item] : value.get_ref<const Json::object_t&>()) {
      AppendMember(made, Contains(kKeys, name) ? name : MarkAll(name, plane),
                   Marked(item, name, plane));
    }
    return made;
  }
  return value;
}

// Returns text parts joined by newlines, as vLLM joins them.
StatusOr<Json> JoinParts(const Json& parts, const std::string& where) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const bool is_text = part.is_object() && part.contains("text") &&
                         part["text"].is_string() &&
                         part.value("type", Json("text")) == "text";
    if (!is_text) {
      return InvalidArgument(where, "[", i,
                             "]: this model takes parts of type text only");
    }
    if (i > 0) text += "\n";
    text += part["text"].get_ref<const std::string&>();
  }
  return Json(std::move(text));
}

Status ParseArguments(Json& call, const std::string& where) {
  if (!call.is_object()) return InvalidArgument(where, ": not an object");
  const auto function = call.find("function");
  if (function == call.end() || !function->is_object()) return OkStatus();
  const auto arguments = function->find("arguments");
  if (arguments == function->end() || !arguments->is_string()) {
    return OkStatus();
  }
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) {
    *arguments = Json::object();
    return OkStatus();
  }
  auto parsed = ParseJson(text);
  if (!parsed.ok()) {
    return Annotate(parsed.status(), where, ".function.arguments");
  }
  if (!parsed->is_object()) {
    return InvalidArgument(where, ".function.arguments: not a JSON object");
  }
  *arguments = *std::move(parsed);
  return OkStatus();
}

Status NormalizeMessage(Json& message, const std::string& where,
                        bool join_parts) {
  if (!message.is_object()) return InvalidArgument(where, ": not an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return InvalidArgument(where, ".role: missing or not a string");
  }
  if (const auto content = message.find("content");
      join_parts && content != message.end() && content->is_array()) {
    SLUICE_ASSIGN_OR_RETURN(*content, JoinParts(*content, where + ".content"));
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return OkStatus();
  if (!calls->is_array()) {
    return InvalidArgument(where, ".tool_calls: not an array");
  }
  for (size_t i = 0; i < calls->size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        ParseArguments((*calls)[i], Cat(where, ".tool_calls[", i, "]")));
  }
  return OkStatus();
}

}  // namespace

StatusOr<Json> NormalizeMessages(Json messages, bool join_parts) {
  if (!messages.is_array()) return InvalidArgument("messages: not an array");
  for (size_t i = 0; i < messages.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        NormalizeMessage(messages[i], Cat("messages[", i, "]"), join_parts));
  }
  return messages;
}

Json MarkRequest(const Json& value, char32_t plane) {
  return Marked(value, "", plane);
}

}  // namespace sluice
