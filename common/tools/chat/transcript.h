#ifndef SLUICE_COMMON_TOOLS_CHAT_TRANSCRIPT_H_
#define SLUICE_COMMON_TOOLS_CHAT_TRANSCRIPT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"

namespace sluice::chat {

struct ChatMessage {
  bool is_user = true;  // else the model's
  std::string text;
  bool operator==(const ChatMessage&) const = default;
};

// A conversation, as far as it came. Value type.
struct Transcript {
  std::optional<std::string> system;
  Json settings = Json::object();  // fields of a request
  std::vector<ChatMessage> messages;
};

// Returns whether `name` is a field that the transcript itself fills.
bool IsOwnField(std::string_view name);

// Returns the "messages" of /v1/chat/completions.
Json MessagesOf(const Transcript& transcript);

// A file of a conversation is a body of /v1/chat/completions: its messages and
// settings, readable by its user alone. FAILED_PRECONDITION if `path` is there
// and no such file; UNAVAILABLE if it cannot be written.
Status SaveTranscript(const Transcript& transcript, const std::string& path);

// Reads a body of /v1/chat/completions. NOT_FOUND for an unreadable file;
// INVALID_ARGUMENT, naming the message, for what a chat on a terminal has not:
// tools' messages, parts that are no text.
StatusOr<Transcript> LoadTranscript(const std::string& path);

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_TRANSCRIPT_H_
