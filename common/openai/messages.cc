#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/json.h"
#include "common/openai/error.h"
#include "common/openai/fields.h"
#include "common/openai/parse.h"

namespace sluice::openai {
namespace {

// Parts of OpenAI's and vLLM's APIs that no model here reads.
constexpr std::string_view kOtherParts[] = {
    "image_url", "input_image", "image",      "input_audio", "audio_url",
    "video_url", "file",        "input_file", "refusal",     "thinking"};

// Role, content, name, reasoning, calls, and one member of a template's own.
constexpr size_t kMaxMessageMembers = 6;

// Returns the refusal of a part of `type`, without the client's words.
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
    // An assistant's message with calls alone has no content.
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

// A string member of a message or a call.
struct StringMember {
  const char* name;
  const char* as;  // the template's name
  size_t max_bytes = std::numeric_limits<size_t>::max();
};

// Copies `member` of `in`, if present, to `out`.
Status CopyString(const Json& in, const StringMember& member,
                  const std::string& where, Json& out) {
  const auto found = in.find(member.name);
  if (found == in.end() || found->is_null()) return OkStatus();
  if (!found->is_string()) {
    return FieldError("messages", where, ".", member.name,
                      " must be a string, got ", Describe(*found));
  }
  const size_t bytes = found->get_ref<const std::string&>().size();
  if (bytes > member.max_bytes) {
    return FieldError("messages", where, ".", member.name, " has ", bytes,
                      " bytes, limit ", member.max_bytes);
  }
  out[member.as] = *found;
  return OkStatus();
}

// Returns the arguments of a call as an object, which templates can show.
// Arguments from a model may be cut or no JSON; clients send them back
// unchanged, and a refusal would end the conversation.
StatusOr<Json> ArgumentsToShow(const Json* arguments, const std::string& where,
                               JsonBudget& budget) {
  if (arguments == nullptr) return Json::object();
  if (!arguments->is_string()) return *arguments;
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) return Json::object();
  auto parsed =
      ParseJson(text, {.max_key_bytes = kMaxKeyBytes, .budget = &budget});
  if (parsed.ok() && parsed->is_object()) return parsed;
  if (!parsed.ok() && budget.values == 0) {
    return FieldError("messages", where,
                      ".function.arguments: ", Message(parsed.status()));
  }
  Json made = Json::object();
  made["arguments"] = text;
  return made;
}

// Returns one call of an assistant's message as templates expect it.
StatusOr<Json> ParseToolCall(const Json& call, const std::string& where,
                             JsonBudget& budget) {
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
  if (name->size() > kMaxNameBytes) {
    return FieldError("messages", where, ".function.name has ", name->size(),
                      " bytes, limit ", kMaxNameBytes);
  }
  const Json* arguments = FieldReader(*function).Find("arguments");
  if (arguments != nullptr && !arguments->is_string() &&
      !arguments->is_object()) {
    return FieldError("messages", where,
                      ".function.arguments must be JSON text, got ",
                      Describe(*arguments));
  }
  Json shown = MakeObject(2);
  AppendMember(shown, "name", *name);
  SLUICE_ASSIGN_OR_RETURN(Json parsed,
                          ArgumentsToShow(arguments, where, budget));
  AppendMember(shown, "arguments", std::move(parsed));
  Json out = MakeObject(3);
  AppendMember(out, "type", "function");
  AppendMember(out, "function", std::move(shown));
  SLUICE_RETURN_IF_ERROR(
      CopyString(call, {"id", "id", kMaxNameBytes}, where, out));
  return out;
}

Status CopyToolCalls(const Json& in, const std::string& where, Json& out,
                     JsonBudget& budget) {
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
  // Templates take an empty list for calls.
  Json parsed = Json::array();
  for (size_t i = 0; i < calls->size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(
        Json call,
        ParseToolCall((*calls)[i], Cat(where, ".tool_calls[", i, "]"), budget));
    parsed.push_back(std::move(call));
  }
  if (!parsed.empty()) out["tool_calls"] = std::move(parsed);
  return OkStatus();
}

Status CopyToolFields(const Json& in, std::string_view role,
                      const std::string& where, Json& out) {
  SLUICE_RETURN_IF_ERROR(
      CopyString(in, {"name", "name", kMaxNameBytes}, where, out));
  if (role == "tool") {
    SLUICE_RETURN_IF_ERROR(CopyString(
        in, {"tool_call_id", "tool_call_id", kMaxNameBytes}, where, out));
  }
  if (role != "assistant") return OkStatus();
  // Servers use either name; the second one wins.
  for (const char* name : {"reasoning", "reasoning_content"}) {
    SLUICE_RETURN_IF_ERROR(
        CopyString(in, {name, "reasoning_content"}, where, out));
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
  return OkStatus();
}

StatusOr<Json> ParseMessage(const Json& message, size_t index,
                            JsonBudget& budget) {
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
  Json out = MakeObject(kMaxMessageMembers);
  AppendMember(out, "role", name == "developer" ? "system" : name);
  SLUICE_ASSIGN_OR_RETURN(Json content, ParseContent(message, name, where));
  AppendMember(out, "content", std::move(content));
  SLUICE_RETURN_IF_ERROR(CopyToolFields(message, name, where, out));
  if (name == "assistant") {
    SLUICE_RETURN_IF_ERROR(CopyToolCalls(message, where, out, budget));
  }
  return out;
}

}  // namespace

StatusOr<Json> ParseMessages(const Json& messages, JsonBudget& budget) {
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
    SLUICE_ASSIGN_OR_RETURN(Json message, ParseMessage(messages[i], i, budget));
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace sluice::openai
