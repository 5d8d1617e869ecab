#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "services/gateway/openai/error.h"
#include "services/gateway/openai/fields.h"
#include "services/gateway/openai/parse.h"

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

Status CopyToolFields(const Json& in, const std::string& where, Json& out) {
  for (const char* name : {"name", "tool_call_id"}) {
    const auto found = in.find(name);
    if (found == in.end() || found->is_null()) continue;
    if (!found->is_string()) {
      return FieldError("messages", where, ".", name, " must be a string, got ",
                        Describe(*found));
    }
    out[name] = *found;
  }
  const auto calls = in.find("tool_calls");
  if (calls == in.end() || calls->is_null() || calls->empty()) {
    return OkStatus();
  }
  const bool objects =
      calls->is_array() &&
      std::all_of(calls->begin(), calls->end(),
                  [](const Json& call) { return call.is_object(); });
  if (!objects) {
    return FieldError("messages", where,
                      ".tool_calls must be an array of objects, got ",
                      Describe(*calls));
  }
  out["tool_calls"] = *calls;
  return OkStatus();
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
  SLUICE_RETURN_IF_ERROR(CopyToolFields(message, where, out));
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
