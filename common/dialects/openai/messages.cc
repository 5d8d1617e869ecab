#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/json.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"

namespace sluice::openai {
namespace {

// Parts of OpenAI's and vLLM's APIs that no model here reads.
constexpr std::string_view kPictures[] = {"image_url", "input_image", "image"};
constexpr std::string_view kOtherParts[] = {
    "input_audio", "audio_url", "video_url", "file", "input_file", "thinking"};

template <size_t N>
bool HasName(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Where a message is, in errors, and what becomes of its pictures: a client
// repeats its history for ever, so there a picture is a note, and it is an
// error in the user's last turn.
struct Place {
  std::string name;  // "messages[1]"
  bool notes_pictures = false;
};

// Parts of text in OpenAI's chats and Responses, with the text's member.
struct TextPart {
  std::string_view type;
  const char* member;
};
constexpr TextPart kTextParts[] = {{"text", "text"},
                                   {"input_text", "text"},
                                   {"output_text", "text"},
                                   {"refusal", "refusal"}};

// Returns the refusal of a part of `type`, without the client's words.
std::string PartRefusal(const std::string& type) {
  return HasName(kOtherParts, type) || HasName(kPictures, type)
             ? Cat(".type \"", type, "\" is not supported, only \"text\" is")
             : ".type must be \"text\"";
}

StatusOr<std::string> JoinParts(const Json& parts, const Place& place) {
  const std::string& where = place.name;
  if (parts.size() > serving::kMaxContentParts) {
    return serving::FieldError("messages", where, ".content has ", parts.size(),
                               " parts, limit ", serving::kMaxContentParts);
  }
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string at = Cat(where, ".content[", i, "]");
    if (!parts[i].is_object()) {
      return serving::FieldError("messages", at, " must be an object, got ",
                                 serving::Describe(parts[i]));
    }
    serving::FieldReader part(parts[i]);
    const std::string type = part.String("type").value_or("");
    if (i > 0) text += '\n';
    if (place.notes_pictures && HasName(kPictures, type)) {
      text += serving::kImageNote;
      continue;
    }
    const auto known =
        std::find_if(std::begin(kTextParts), std::end(kTextParts),
                     [&](const TextPart& one) { return one.type == type; });
    if (known == std::end(kTextParts)) {
      return serving::WithCode(
          serving::FieldError("messages", at, PartRefusal(type)),
          "unsupported_content");
    }
    const auto piece = part.String(known->member);
    if (!piece) {
      return serving::FieldError("messages", at, ".", known->member,
                                 " must be a string");
    }
    text += *piece;
  }
  return text;
}

StatusOr<std::string> ParseContent(const Json& message, std::string_view role,
                                   const Place& place) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    // An assistant that refused says so beside the content.
    const auto refusal = message.find("refusal");
    const bool refused =
        role == "assistant" && refusal != message.end() && refusal->is_string();
    if (refused) return refusal->get<std::string>();
    // Calls alone, and a function that returned nothing, have no content.
    if (role == "assistant" || role == "tool") return std::string();
    return serving::FieldError("messages", place.name, ".content is missing");
  }
  if (content->is_string()) return content->get<std::string>();
  if (content->is_array()) return JoinParts(*content, place);
  return serving::FieldError(
      "messages", place.name,
      ".content must be a string or an array of parts, got ",
      serving::Describe(*content));
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
    return serving::FieldError("messages", where, ".", member.name,
                               " must be a string, got ",
                               serving::Describe(*found));
  }
  const size_t bytes = found->get_ref<const std::string&>().size();
  if (bytes > member.max_bytes) {
    return serving::FieldError("messages", where, ".", member.name, " has ",
                               bytes, " bytes, limit ", member.max_bytes);
  }
  out[member.as] = *found;
  return OkStatus();
}

// Returns a call of `function` as templates expect it. `place` is in errors.
StatusOr<Json> ParseFunction(const Json& function, const std::string& place,
                             JsonBudget& budget) {
  const auto name = serving::FieldReader(function).String("name");
  if (!name || name->empty()) {
    return serving::FieldError("messages", place,
                               ".name must be a string that is not empty");
  }
  if (name->size() > serving::kMaxNameBytes) {
    return serving::FieldError("messages", place, ".name has ", name->size(),
                               " bytes, limit ", serving::kMaxNameBytes);
  }
  const Json* arguments = serving::FieldReader(function).Find("arguments");
  if (arguments != nullptr && !arguments->is_string() &&
      !arguments->is_object()) {
    return serving::FieldError("messages", place,
                               ".arguments must be JSON text, got ",
                               serving::Describe(*arguments));
  }
  auto shown = serving::ArgumentsToShow(arguments, budget);
  if (!shown.ok()) {
    return serving::FieldError("messages", place,
                               ".arguments: ", Message(shown.status()));
  }
  return serving::MakeCall(*name, *std::move(shown));
}

// Returns one call of an assistant's message as templates expect it.
StatusOr<Json> ParseToolCall(const Json& call, const std::string& where,
                             JsonBudget& budget) {
  if (!call.is_object()) {
    return serving::FieldError("messages", where, " must be an object, got ",
                               serving::Describe(call));
  }
  serving::FieldReader in(call);
  if (in.String("type").value_or("function") != "function") {
    return serving::FieldError("messages", where, ".type must be \"function\"");
  }
  const Json* function = in.Find("function");
  if (function == nullptr || !function->is_object()) {
    return serving::FieldError("messages", where,
                               ".function must be an object");
  }
  SLUICE_ASSIGN_OR_RETURN(
      Json out, ParseFunction(*function, where + ".function", budget));
  SLUICE_RETURN_IF_ERROR(
      CopyString(call, {"id", "id", serving::kMaxNameBytes}, where, out));
  return out;
}

// Copies function_call, the older form of one call, as a call.
Status CopyFunctionCall(const Json& in, const std::string& where, Json& out,
                        JsonBudget& budget) {
  const auto call = in.find("function_call");
  if (call == in.end() || call->is_null()) return OkStatus();
  const std::string place = where + ".function_call";
  if (!call->is_object()) {
    return serving::FieldError("messages", place, " must be an object, got ",
                               serving::Describe(*call));
  }
  if (out.contains("tool_calls")) {
    return serving::FieldError(
        "messages", place,
        " cannot go with tool_calls, of which it is the older "
        "form");
  }
  SLUICE_ASSIGN_OR_RETURN(Json made, ParseFunction(*call, place, budget));
  out["tool_calls"] = Json::array();
  out["tool_calls"].push_back(std::move(made));
  return OkStatus();
}

Status CopyToolCalls(const Json& in, const std::string& where, Json& out,
                     JsonBudget& budget) {
  const auto calls = in.find("tool_calls");
  if (calls == in.end() || calls->is_null()) return OkStatus();
  if (!calls->is_array()) {
    return serving::FieldError("messages", where,
                               ".tool_calls must be an array of objects, got ",
                               serving::Describe(*calls));
  }
  if (calls->size() > serving::kMaxToolCalls) {
    return serving::FieldError("messages", where, ".tool_calls has ",
                               calls->size(), " calls, limit ",
                               serving::kMaxToolCalls);
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
      CopyString(in, {"name", "name", serving::kMaxNameBytes}, where, out));
  if (role == "tool") {
    SLUICE_RETURN_IF_ERROR(
        CopyString(in, {"tool_call_id", "tool_call_id", serving::kMaxNameBytes},
                   where, out));
  }
  if (role != "assistant") return OkStatus();
  // Servers use any of these names; the last one wins.
  for (const char* name : {"thinking", "reasoning", "reasoning_content"}) {
    SLUICE_RETURN_IF_ERROR(
        CopyString(in, {name, "reasoning_content"}, where, out));
  }
  if (out.contains("reasoning_content") && out["reasoning_content"] == "") {
    out.erase("reasoning_content");
  }
  return OkStatus();
}

// Adds a note for each picture of `message` in the member "images", Ollama's.
Status AddImageNotes(const Json& message, const Place& place,
                     std::string& content) {
  const auto images = message.find("images");
  const bool has_some =
      place.notes_pictures && images != message.end() && images->is_array();
  if (!has_some) return OkStatus();
  if (images->size() > serving::kMaxContentParts) {
    return serving::FieldError("messages", place.name, ".images has ",
                               images->size(), " pictures, limit ",
                               serving::kMaxContentParts);
  }
  for (size_t i = 0; i < images->size(); ++i) {
    if (!content.empty()) content += '\n';
    content += serving::kImageNote;
  }
  return OkStatus();
}

// Refuses members of other servers' messages without which the answer is to
// another message.
Status RefuseUnbuiltMembers(const Json& message, const Place& place) {
  struct Member {
    const char* name;
    const char* instead;
  };
  static constexpr Member kMembers[] = {
      {"images", "no model here reads pictures"},
      {"audio", "no model here reads sound"},
      {"prefix", "give continue_final_message"},
      {"partial", "give continue_final_message"}};
  for (const Member& member : kMembers) {
    const auto found = message.find(member.name);
    if (found == message.end() || found->is_null()) continue;
    const bool empty =
        *found == false || (found->is_structured() && found->empty());
    const bool is_noted = place.notes_pictures && found->is_array() &&
                          std::string_view(member.name) == "images";
    if (empty || is_noted) continue;
    return serving::WithCode(
        serving::FieldError("messages", place.name, ".", member.name,
                            " is not supported: ", member.instead),
        "unsupported_content");
  }
  return OkStatus();
}

// `last_user`: the index of the user's last message.
StatusOr<Json> ParseMessage(const Json& message, size_t index, size_t last_user,
                            JsonBudget& budget) {
  const Place place{Cat("messages[", index, "]"), index != last_user};
  const std::string& where = place.name;
  if (!message.is_object()) {
    return serving::FieldError("messages", where, " must be an object, got ",
                               serving::Describe(message));
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return serving::FieldError("messages", where, ".role must be a string");
  }
  // The client's name of a role, and the template's.
  static constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
      {"system", "system"}, {"user", "user"},        {"assistant", "assistant"},
      {"tool", "tool"},     {"developer", "system"}, {"function", "tool"}};
  const auto found =
      std::find_if(std::begin(kRoles), std::end(kRoles), [&](const auto& one) {
        return one.first == role->get_ref<const std::string&>();
      });
  if (found == std::end(kRoles)) {
    return serving::FieldError(
        "messages", where,
        ".role must be system, user, assistant, tool, developer "
        "or function");
  }
  SLUICE_RETURN_IF_ERROR(RefuseUnbuiltMembers(message, place));
  const std::string_view name = found->second;
  SLUICE_ASSIGN_OR_RETURN(std::string content,
                          ParseContent(message, name, place));
  SLUICE_RETURN_IF_ERROR(AddImageNotes(message, place, content));
  Json out = serving::MakeMessage(name, std::move(content));
  SLUICE_RETURN_IF_ERROR(CopyToolFields(message, name, where, out));
  if (name == "assistant") {
    SLUICE_RETURN_IF_ERROR(CopyToolCalls(message, where, out, budget));
    SLUICE_RETURN_IF_ERROR(CopyFunctionCall(message, where, out, budget));
  }
  return out;
}

// Returns the index of the last message of role user; their number: there is
// none.
size_t LastUser(const Json& messages) {
  for (size_t i = messages.size(); i > 0; --i) {
    const Json& message = messages[i - 1];
    if (!message.is_object()) continue;
    const auto role = message.find("role");
    if (role != message.end() && *role == "user") return i - 1;
  }
  return messages.size();
}

}  // namespace

StatusOr<Json> ParseMessages(const Json& messages, JsonBudget& budget) {
  if (!messages.is_array() || messages.empty()) {
    return serving::FieldError("messages",
                               "must be an array of at least one message, "
                               "got ",
                               serving::Describe(messages));
  }
  if (messages.size() > serving::kMaxMessages) {
    return serving::FieldError("messages", "has ", messages.size(),
                               " messages, limit ", serving::kMaxMessages);
  }
  Json out = Json::array();
  const size_t last_user = LastUser(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(Json message,
                            ParseMessage(messages[i], i, last_user, budget));
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace sluice::openai
