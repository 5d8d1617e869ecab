#ifndef SLUICE_SERVICES_CLI_CONVERSATION_H_
#define SLUICE_SERVICES_CLI_CONVERSATION_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/http/http_client.h"
#include "common/tools/chat/dialect.h"
#include "common/tools/load/stream_chunk.h"
#include "services/cli/command_line.h"
#include "services/cli/interrupts.h"

namespace sluice::cli {

// What a person gives besides the text that a model answers.
struct ChatSettings {
  Json sampling = Json::object();  // fields of a request
  std::optional<std::string> system;
  std::optional<chat::Dialect> dialect;  // none: what the server shows
  std::string model;                     // served; empty: its first one
  bool no_history = false;
};

// Adds the sampling options, which write fields of `sampling`. An absent one
// takes the model's default.
void AddSampling(CLI::App& app, Json& sampling);
void AddChatSettings(CLI::App& app, ChatSettings& settings);  // and --system
void AddServerSettings(CLI::App& app, ChatSettings& settings);

// Prints a text of others at once, without control characters for the terminal.
void PrintPlain(std::string_view text);

// Streams the answer to `body` to stdout and gives every event to `take`.
// CANCELLED as soon as a signal has come; `interrupts` may be null.
Status StreamAnswer(const http::BaseUrl& base, const char* target,
                    const Json& body, const Interrupts* interrupts,
                    const std::function<void(const load::StreamChunk&)>& take);

// chat::Converse; InterruptedBy for a signal that ends it.
Status Converse(const http::BaseUrl& base, const ChatSettings& settings,
                Interrupts& interrupts);

// Answers one prompt; a model without a chat template completes it.
// InterruptedBy for a signal.
Status AnswerPrompt(const http::BaseUrl& base, const ChatSettings& settings,
                    const std::string& prompt, Interrupts& interrupts);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_CONVERSATION_H_
