#ifndef SLUICE_COMMON_TOOLS_CHAT_DIALECT_H_
#define SLUICE_COMMON_TOOLS_CHAT_DIALECT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/http/http_client.h"
#include "common/tools/chat/transcript.h"

namespace sluice::chat {

// What a server speaks: /v1/chat/completions, /v1/responses, /v1/messages, or
// Ollama's /api/chat.
enum class Dialect { kChat, kResponses, kMessages, kOllama };

// Returns the name that --dialect has for it.
std::string_view NameOf(Dialect dialect);
// INVALID_ARGUMENT for another name.
StatusOr<Dialect> ParseDialect(std::string_view name);

struct Server {
  http::BaseUrl base;
  Dialect dialect = Dialect::kChat;
  std::string model;
};

// Asks the server at `base` for its models and, without a dialect, for what it
// speaks: chat where it does; else the dialect that its answers show. `model`
// empty: its first one. Errors are those of the calls.
StatusOr<Server> FindServer(const http::BaseUrl& base,
                            std::optional<Dialect> dialect,
                            const std::string& model);

// Returns the path and the body that ask for a streamed answer. Settings have
// the names of /v1/chat/completions and get those of the dialect; another name
// is the dialect's own field (of Ollama: an option). INVALID_ARGUMENT for a
// setting whose place is within one that is no object.
std::string_view PathOf(Dialect dialect);
StatusOr<Json> RequestOf(const Server& server, const Transcript& transcript);

// What one event of a stream tells.
struct AnswerPart {
  std::string text;
  std::string thinking;
  std::string finish;  // why the answer ended, by the dialect's word
  bool is_end = false;
  std::optional<int64_t> prompt_tokens;  // all of them
  std::optional<int64_t> cached_tokens;  // of the prompt's
  std::optional<int64_t> completion_tokens;
};

// INVALID_ARGUMENT for data that is no JSON object; UNAVAILABLE, with the
// server's message, for an error.
StatusOr<AnswerPart> ReadPart(Dialect dialect, std::string_view data);

// Streams an answer to `take`. UNAVAILABLE, too, for a stream without its end;
// CANCELLED as soon as `cancel_fd` can be read.
Status StreamAnswer(const Server& server, const Transcript& transcript,
                    const std::function<Status(const AnswerPart&)>& take,
                    int cancel_fd);

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_DIALECT_H_
