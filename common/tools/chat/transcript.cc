#include "common/tools/chat/transcript.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "common/base/json_member.h"
#include "common/base/text_file.h"
#include "common/tools/chat/private_file.h"

namespace sluice::chat {
namespace {

constexpr JsonLimits kFileLimits = {.max_bytes = size_t{256} << 20};

// Returns the text of a message's content: a string, or parts of text.
StatusOr<std::string> ContentOf(const Json& message, const std::string& name) {
  const Json* content = FindMember(message, "content");
  if (content != nullptr && content->is_string()) {
    return content->get<std::string>();
  }
  if (content == nullptr || !content->is_array()) {
    return InvalidArgument(name, ".content is no text");
  }
  std::string text;
  for (const Json& part : *content) {
    if (FindText(part, "type") != "text") {
      return InvalidArgument(name, ".content has a part of type '",
                             FindText(part, "type"), "'; a chat has text");
    }
    text += FindText(part, "text");
  }
  return text;
}

Status AddMessage(const Json& message, size_t index, Transcript& transcript) {
  const std::string name = Cat("messages[", index, "]");
  const std::string role = FindText(message, "role");
  SLUICE_ASSIGN_OR_RETURN(std::string text, ContentOf(message, name));
  const bool is_system = role == "system" || role == "developer";
  if (is_system && index == 0) {
    transcript.system = std::move(text);
  } else if (role == "user" || role == "assistant") {
    transcript.messages.push_back({role == "user", std::move(text)});
  } else {
    return InvalidArgument(
        name, ".role is '", role, "'; a chat has ",
        is_system ? "one system message, the first" : "user and assistant");
  }
  return OkStatus();
}

}  // namespace

bool IsOwnField(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kOwn = {
      "messages",     "input",  "prompt",        "system",
      "instructions", "stream", "stream_options"};
  return std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
}

Json MessagesOf(const Transcript& transcript) {
  Json messages = Json::array();
  if (transcript.system) {
    messages.push_back({{"role", "system"}, {"content", *transcript.system}});
  }
  for (const ChatMessage& message : transcript.messages) {
    messages.push_back({{"role", message.is_user ? "user" : "assistant"},
                        {"content", message.text}});
  }
  return messages;
}

Status SaveTranscript(const Transcript& transcript, const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !LoadTranscript(path).ok()) {
    return FailedPrecondition(
        path, " is there and is no saved chat: it stays as it is");
  }
  Json body = transcript.settings;
  body["messages"] = MessagesOf(transcript);
  return WritePrivateFile(
      path, body.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

StatusOr<Transcript> LoadTranscript(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const StatusOr<Json> body = ParseJson(text, kFileLimits);
  if (!body.ok()) return Annotate(body.status(), path);
  const Json* messages = FindMember(*body, "messages");
  if (messages == nullptr || !messages->is_array()) {
    return InvalidArgument(path, " has no list \"messages\"");
  }
  Transcript transcript;
  for (size_t i = 0; i < messages->size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        Annotate(AddMessage((*messages)[i], i, transcript), path));
  }
  for (const auto& [name, value] : body->items()) {
    if (!IsOwnField(name)) transcript.settings[name] = value;
  }
  return transcript;
}

}  // namespace sluice::chat
