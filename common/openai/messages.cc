#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/openai/error.h"
#include "common/openai/fields.h"
#include "common/openai/parse.h"

namespace sluice::gateway {
namespace {

// Parts of OpenAI's and vLLM's APIs that no model here reads yet.
constexpr std::string_view kOtherParts[] = {
    "image_url", "input_image", "image",      "input_audio", "audio_url",
    "video_url", "file",        "input_file", "refusal",     "thinking"};

// What to say of a part of `type`; what the client wrote is never quoted.
std::string PartRefusal(const std::string& type) {
  const auto known = std::find(std::begin(kOtherParts), std::end(kOtherParts),
                               std::string_view(type));
  return known == std::end(kOtherParts)
             ? ".type must be \"text\""
             : Cat(".type \"", type, "\" is not supported, only \"text\" is");
}

StatusOr<std::string> JoinParts(const Json& parts, const std::string& where) {
  if (parts.size() > kMaxContentParts) {
    return FieldError("messages", where, ".content has ", parts.size(),
                      " parts, limit ", kMaxContentParts);
  }
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string at = Cat(where, ".content[", i, "]");
    if (!parts[i].is_object()) {
      return FieldError("messages", at, " must be an object, got ",
                        Describe(parts[i]));
    }
    FieldReader part(parts[i]);
    const std::string type = part.String("type").value_or("");
    if (type != "text") {
      return WithCode(FieldError("messages", at, PartRefusal(type)),
                      "unsupported_content");
    }
    const auto piece = part.String("text");
    if (!piece) {
      return FieldError("messages", at, ".text must be a string");
    }
    if (i > 0) text += '\n';
    text += *piece;
  }
  return text;
}

StatusOr<Json> ParseContent(const Json& message, std::string_view role,
                            const std::string& where) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    // An assistant that only called tools has no content.
    if (role == "assistant") return Json("");
    return FieldError("messages", where, ".content is missing");
  }
  if (content->is_string()) return *content;
  if (content->is_array()) {
    SLUICE_ASSIGN_OR_RETURN(std::string text, JoinParts(*content, where));
    return Json(std::move(text));
  }
  return FieldError("messages", where,
                    ".content must be a string or an array of parts, got ",
                    Describe(*content));
}

// Copies the string `name` of `in`, if it is there, to `as` of `out`.
Status CopyString(const Json& in, const char* name, const std::string& where,
                  Json& out, const char* as) {
  const auto found = in.find(name);
  if (found == in.end() || found->is_null()) return OkStatus();
  if (!found->is_string()) {
    return FieldError("messages", where, ".", name, " must be a string, got ",
                      Describe(*found));
  }
  out[as] = *found;
  return OkStatus();
}

// The arguments of a call as templates can show them: an object, or the JSON
// text of one. A model's arguments may be cut, or no JSON: clients send them
// back as they are, and a refusal would end the conversation.
Json ArgumentsToShow(const Json* arguments) {
  if (arguments == nullptr) return Json::object();
  if (!arguments->is_string()) return *arguments;
  const auto& text = arguments->get_ref<const std::string&>();
  const auto parsed = ParseJson(text);
  if (text.empty() || (parsed.ok() && parsed->is_object())) return *arguments;
  Json made = Json::object();
  made["arguments"] = text;
  return made;
}

// One call of an assistant's message as templates expect it.
StatusOr<Json> ParseToolCall(const Json& call, const std::string& where) {
  if (!call.is_object()) {
    return FieldError("messages", where, " must be an object, got ",
                      Describe(call));
  }
  FieldReader in(call);
  if (in.String("type").value_or("function") != "function") {
    return FieldError("messages", where, ".type must be \"function\"");
  }
  const Json* function = in.Find("function");
  if (function == nullptr || !function->is_object()) {
    return FieldError("messages", where, ".function must be an object");
  }
  const auto name = FieldReader(*function).String("name");
  if (!name || name->empty()) {
    return FieldError("messages", where,
                      ".function.name must be a string that is not empty");
  }
  const Json* arguments = FieldReader(*function).Find("arguments");
  if (arguments != nullptr && !arguments->is_string() &&
      !arguments->is_object()) {
    return FieldError("messages", where,
                      ".function.arguments must be JSON text, got ",
                      Describe(*arguments));
  }
  Json out{{"type", "function"},
           {"function",
            {{"name", *name}, {"arguments", ArgumentsToShow(arguments)}}}};
  SLUICE_RETURN_IF_ERROR(CopyString(call, "id", where, out, "id"));
  return out;
}

Status CopyToolCalls(const Json& in, const std::string& where, Json& out) {
  const auto calls = in.find("tool_calls");
  if (calls == in.end() || calls->is_null()) return OkStatus();
  if (!calls->is_array()) {
    return FieldError("messages", where,
                      ".tool_calls must be an array of objects, got ",
                      Describe(*calls));
  }
  if (calls->size() > kMaxToolCalls) {
    return FieldError("messages", where, ".tool_calls has ", calls->size(),
                      " calls, limit ", kMaxToolCalls);
  }
  // Templates take the mere presence of an empty list for calls.
  Json parsed = Json::array();
  for (size_t i = 0; i < calls->size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(
        Json call,
        ParseToolCall((*calls)[i], Cat(where, ".tool_calls[", i, "]")));
    parsed.push_back(std::move(call));
  }
  if (!parsed.empty()) out["tool_calls"] = std::move(parsed);
  return OkStatus();
}

Status CopyToolFields(const Json& in, std::string_view role,
                      const std::string& where, Json& out) {
  SLUICE_RETURN_IF_ERROR(CopyString(in, "name", where, out, "name"));
  if (role == "tool") {
    SLUICE_RETURN_IF_ERROR(
        CopyString(in, "tool_call_id", where, out, "tool_call_id"));
  }
  if (role != "assistant") return OkStatus();
  // By either name, as servers give it back: the second wins.
  for (const char* name : {"reasoning", "reasoning_content"}) {
    SLUICE_RETURN_IF_ERROR(
        CopyString(in, name, where, out, "reasoning_content"));
  }
  if (out.contains("reasoning_content") && out["reasoning_content"] == "") {
    out.erase("reasoning_content");
  }
  if (const auto call = in.find("function_call");
      call != in.end() && !call->is_null()) {
    return FieldError("messages", where,
                      ".function_call is deprecated and not supported; give "
                      "tool_calls instead");
  }
  return CopyToolCalls(in, where, out);
}

StatusOr<Json> ParseMessage(const Json& message, size_t index) {
  const std::string where = Cat("messages[", index, "]");
  if (!message.is_object()) {
    return FieldError("messages", where, " must be an object, got ",
                      Describe(message));
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return FieldError("messages", where, ".role must be a string");
  }
  const auto& name = role->get_ref<const std::string&>();
  static constexpr std::string_view kRoles[] = {"system", "user", "assistant",
                                                "tool", "developer"};
  if (std::find(std::begin(kRoles), std::end(kRoles), name) ==
      std::end(kRoles)) {
    return FieldError("messages", where,
                      ".role must be system, user, assistant, tool or "
                      "developer");
  }
  Json out;
  out["role"] = name == "developer" ? "system" : name;
  SLUICE_ASSIGN_OR_RETURN(out["content"], ParseContent(message, name, where));
  SLUICE_RETURN_IF_ERROR(CopyToolFields(message, name, where, out));
  return out;
}

}  // namespace

StatusOr<Json> ParseMessages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return FieldError("messages",
                      "must be an array of at least one message, "
                      "got ",
                      Describe(messages));
  }
  if (messages.size() > kMaxMessages) {
    return FieldError("messages", "has ", messages.size(), " messages, limit ",
                      kMaxMessages);
  }
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(Json message, ParseMessage(messages[i], i));
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace sluice::gateway
