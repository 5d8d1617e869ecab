// The commands chat and generate.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/eval/logits_file.h"
#include "common/http/http_client.h"
#include "common/load/server_queries.h"
#include "common/load/stream_chunk.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

// Adds an option that sets the field of `body` of its name: --top-k sets
// "top_k".
template <typename T>
void AddField(CLI::App& app, const std::string& name, Json& body,
              const std::string& about) {
  std::string field = name.substr(2);
  std::replace(field.begin(), field.end(), '-', '_');
  app.add_option_function<T>(
      name, [&body, field](const T& value) { body[field] = value; }, about);
}

// Adds the sampling options. An absent one takes the model's default.
void AddSampling(CLI::App& app, Json& body) {
  AddField<int64_t>(app, "--max-tokens", body, "tokens of an answer at most");
  AddField<int64_t>(app, "--min-tokens", body, "and at least");
  AddField<double>(app, "--temperature", body, "0: always the likeliest token");
  AddField<double>(app, "--top-p", body, "the likeliest tokens that make up P");
  AddField<int64_t>(app, "--top-k", body, "the N likeliest tokens");
  AddField<double>(app, "--min-p", body,
                   "tokens at least P times as likely as the likeliest");
  AddField<int64_t>(app, "--seed", body, "the same tokens again");
  AddField<std::string>(app, "--stop", body,
                        "ends the answer where this text comes");
}

// Prints model output at once, without control characters for the terminal.
void PrintOutput(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 32 ? byte != 127 : c == '\n' || c == '\t') std::putchar(c);
  }
  std::fflush(stdout);
}

// Streams an answer to stdout and gives every event to `take`.
Status Stream(const http::BaseUrl& base, const char* target, const Json& body,
              const std::function<void(const load::StreamChunk&)>& take) {
  const Status done = http::HttpPostEvents(
      base, target, DumpJson(body), [&](std::string_view event) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const load::StreamChunk chunk,
                                load::ParseGoodChunk(event));
        PrintOutput(chunk.text);
        take(chunk);
        return OkStatus();
      });
  PrintOutput("\n");
  return done;
}

// Streams the answer to `messages` and appends it to them.
Status Answer(const http::BaseUrl& base, Json body, Json& messages) {
  body["messages"] = messages;
  std::string answer;
  SLUICE_RETURN_IF_ERROR(
      Stream(base, "/v1/chat/completions", body,
             [&](const load::StreamChunk& chunk) { answer += chunk.text; }));
  messages.push_back({{"role", "assistant"}, {"content", answer}});
  return OkStatus();
}

struct ChatOptions {
  EndpointOptions endpoint;
  Json sampling = Json::object();  // fields of a request
  std::optional<std::string> system;
};

Status RunChat(const ChatOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const http::BaseUrl base,
                          FindGateway(options.endpoint));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, load::ServedModelId(base));
  Json body = {{"model", model}, {"stream", true}};
  body.update(options.sampling);
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
        messages.erase(messages.size() - 1);  // as if the user had not asked
        std::fprintf(stderr, "%s\n", Message(answered).c_str());
      }
    }
  }
}

// Writes the logits after each of `ids`.
Status DumpLogits(const http::BaseUrl& base, const std::vector<int64_t>& ids,
                  const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const eval::LogitRows rows,
                          eval::FetchLogits(base, ids));
  SLUICE_RETURN_IF_ERROR(eval::WriteLogitsFile(path, ids, rows));
  std::fprintf(stderr, "%s: %zu positions of %zu logits\n", path.c_str(),
               ids.size(), rows.columns);
  return OkStatus();
}

struct GenerateOptions {
  EndpointOptions endpoint;
  Json sampling = Json::object();  // fields of a request
  std::string prompt, dump_logits;
  bool ignore_eos = false;
};

Status RunGenerate(const GenerateOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const http::BaseUrl base,
                          FindGateway(options.endpoint));
  SLUICE_ASSIGN_OR_RETURN(const std::string model, load::ServedModelId(base));
  Json body = {{"model", model}, {"prompt", options.prompt}};
  body.update(options.sampling);
  if (options.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = body["return_token_ids"] = true;
  std::vector<int64_t> ids;  // first those of the prompt
  SLUICE_RETURN_IF_ERROR(Stream(
      base, "/v1/completions", body, [&ids](const load::StreamChunk& chunk) {
        ids.insert(ids.end(), chunk.prompt_ids.begin(), chunk.prompt_ids.end());
        const std::vector<int64_t> made =
            chunk.ids.value_or(std::vector<int64_t>());
        ids.insert(ids.end(), made.begin(), made.end());
      }));
  if (options.dump_logits.empty()) return OkStatus();
  if (ids.empty()) return Internal("the gateway gave no token ids");
  return DumpLogits(base, ids, options.dump_logits);
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

void AddGenerate(CommandLine& sluice) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App& generate = sluice.Add("generate", "complete a prompt",
                                  [options] { return RunGenerate(*options); });
  generate.add_option("PROMPT", options->prompt, "what is completed")
      ->required();
  generate.add_flag("--ignore-eos", options->ignore_eos,
                    "go on behind an end token");
  generate.add_option("--dump-logits", options->dump_logits,
                      "the logits of every position, as safetensors");
  AddSampling(generate, options->sampling);
  AddEndpoint(generate, options->endpoint);
}

}  // namespace sluice::cli
