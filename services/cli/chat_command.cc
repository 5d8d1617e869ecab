#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "common/base/json.h"
#include "services/cli/arguments.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_table.h"
#include "services/cli/commands.h"
#include "services/cli/http_client.h"
#include "services/cli/sampling_options.h"

namespace sluice::cli {
namespace {

// The text that one streamed event adds; an error event is an error.
StatusOr<std::string> DeltaOf(std::string_view event) {
  if (event == "[DONE]") return std::string();
  SLUICE_ASSIGN_OR_RETURN(const Json json, ParseJson(event));
  if (!json.is_object()) return Internal("odd event: ", event);
  if (json.contains("error")) {
    return Unavailable(ErrorText(200, std::string(event)));
  }
  if (!json.contains("choices") || !json["choices"].is_array()) {
    return std::string();
  }
  for (const Json& choice : json["choices"]) {
    if (!choice.is_object() || !choice.contains("delta")) continue;
    const Json& delta = choice["delta"];
    if (delta.is_object() && delta.contains("content") &&
        delta["content"].is_string()) {
      return delta["content"].get<std::string>();
    }
  }
  return std::string();
}

// Streams the answer to `messages` and appends it to them.
Status Answer(const BaseUrl& base, Json body, Json& messages) {
  body["messages"] = messages;
  std::string answer;
  const Status done = HttpPostEvents(
      base, "/v1/chat/completions", DumpJson(body),
      [&](std::string_view event) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const std::string delta, DeltaOf(event));
        PrintOutput(delta);
        answer += delta;
        return OkStatus();
      });
  PrintOutput("\n");
  SLUICE_RETURN_IF_ERROR(done);
  messages.push_back({{"role", "assistant"}, {"content", answer}});
  return OkStatus();
}

}  // namespace

Status RunChat(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          ParseArguments("chat", words));
  SLUICE_ASSIGN_OR_RETURN(const BaseUrl base, FindGateway(arguments));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, ServedModelId(base));
  Json body = {{"model", model}, {"stream", true}};
  SLUICE_RETURN_IF_ERROR(AddSampling(arguments, body));
  Json first = Json::array();
  if (const auto system = arguments.String("system")) {
    first.push_back({{"role", "system"}, {"content", *system}});
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

}  // namespace sluice::cli
