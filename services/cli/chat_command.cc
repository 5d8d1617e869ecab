#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "common/base/json.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/http_client.h"
#include "services/cli/sampling_options.h"
#include "services/cli/stream_chunk.h"

namespace sluice::cli {
namespace {

// Streams the answer to `messages` and appends it to them.
Status Answer(const BaseUrl& base, Json body, Json& messages) {
  body["messages"] = messages;
  std::string answer;
  const Status done = HttpPostEvents(
      base, "/v1/chat/completions", DumpJson(body),
      [&](std::string_view event) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const StreamChunk chunk, ParseGoodChunk(event));
        PrintOutput(chunk.text);
        answer += chunk.text;
        return OkStatus();
      });
  PrintOutput("\n");
  SLUICE_RETURN_IF_ERROR(done);
  messages.push_back({{"role", "assistant"}, {"content", answer}});
  return OkStatus();
}

struct ChatOptions {
  EndpointOptions endpoint;
  SamplingOptions sampling;
  std::optional<std::string> system;
};

Status RunChat(const ChatOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, FindGateway(options.endpoint));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, ServedModelId(base));
  Json body = {{"model", model}, {"stream", true}};
  AddSampling(options.sampling, body);
  Json first = Json::array();
  if (options.system) {
    first.push_back({{"role", "system"}, {"content", *options.system}});
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) {
    std::fprintf(stderr, "%s. /reset starts anew, Ctrl-D ends.\n",
                 model.c_str());
  }
  Json messages = first;
  for (;;) {
    if (terminal) std::fprintf(stderr, "> ");
    std::string line;
    if (!std::getline(std::cin, line)) return OkStatus();
    if (line == "/reset") {
      messages = first;
    } else if (!line.empty()) {
      messages.push_back({{"role", "user"}, {"content", line}});
      const Status answered = Answer(base, body, messages);
      if (!answered.ok() && !terminal) return answered;
      if (!answered.ok()) {
        messages.erase(messages.size() - 1);  // As if it was not asked.
        std::fprintf(stderr, "%s\n", Message(answered).c_str());
      }
    }
  }
}

}  // namespace

void AddChat(CommandLine& sluice) {
  const auto options = std::make_shared<ChatOptions>();
  CLI::App& chat = sluice.Add("chat", "a conversation on the terminal",
                              [options] { return RunChat(*options); });
  chat.add_option("--system", options->system, "what the model is told first");
  AddSampling(chat, options->sampling);
  AddEndpoint(chat, options->endpoint);
}

}  // namespace sluice::cli
