#include "services/cli/conversation.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "common/base/json_member.h"
#include "common/tools/chat/conversation.h"
#include "common/tools/chat/terminal_text.h"
#include "common/tools/load/server_queries.h"
#include "services/cli/cluster_file.h"

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

Json FirstMessages(const ChatSettings& settings) {
  Json messages = Json::array();
  if (settings.system) {
    messages.push_back({{"role", "system"}, {"content", *settings.system}});
  }
  return messages;
}

StatusOr<Json> BodyOf(const http::BaseUrl& base, const ChatSettings& settings) {
  SLUICE_ASSIGN_OR_RETURN(const std::string model, load::ServedModelId(base));
  Json body = {{"model", model}, {"stream", true}};
  body.update(settings.sampling);
  return body;
}

// Returns whether the server says that its model has no chat template.
bool LacksChatTemplate(const http::BaseUrl& base) {
  const StatusOr<Json> info = http::GetJson(base, "/tokenizer_info");
  return info.ok() && info->contains("chat_template") &&
         (*info)["chat_template"].is_null();
}

}  // namespace

void AddSampling(CLI::App& app, Json& sampling) {
  AddField<int64_t>(app, "--max-tokens", sampling,
                    "tokens of an answer at most");
  AddField<int64_t>(app, "--min-tokens", sampling, "and at least");
  AddField<double>(app, "--temperature", sampling,
                   "0: always the likeliest token");
  AddField<double>(app, "--top-p", sampling,
                   "the likeliest tokens that make up P");
  AddField<int64_t>(app, "--top-k", sampling, "the N likeliest tokens");
  AddField<double>(app, "--min-p", sampling,
                   "tokens at least P times as likely as the likeliest");
  AddField<int64_t>(app, "--seed", sampling, "the same tokens again");
  AddField<std::string>(app, "--stop", sampling,
                        "ends the answer where this text comes");
}

void AddChatSettings(CLI::App& app, ChatSettings& settings) {
  app.add_option("--system", settings.system, "what the model is told first");
  app.add_flag("--no-history", settings.no_history,
               "typed prompts are kept in memory alone");
  AddSampling(app, settings.sampling);
}

void AddServerSettings(CLI::App& app, ChatSettings& settings) {
  AddParsed(
      app, "--dialect", settings.dialect,
      [](const std::string& name) -> StatusOr<std::optional<chat::Dialect>> {
        if (name == "auto") return std::nullopt;
        return chat::ParseDialect(name);
      },
      "what the server speaks: chat, responses, messages, ollama, or auto, "
      "what its answers show");
  app.add_option("--served-model", settings.model,
                 "of the server's models; else its first one");
}

void PrintPlain(std::string_view text) {
  std::fputs(chat::WithoutControls(text).c_str(), stdout);
  std::fflush(stdout);
}

Status StreamAnswer(const http::BaseUrl& base, const char* target,
                    const Json& body, const Interrupts* interrupts,
                    const std::function<void(const load::StreamChunk&)>& take) {
  const Status done = http::HttpPostEvents(
      base, target, DumpJson(body),
      [&](std::string_view event) -> Status {
        SLUICE_ASSIGN_OR_RETURN(const load::StreamChunk chunk,
                                load::ParseGoodChunk(event));
        // A reader that takes nothing keeps no signal from acting.
        if (interrupts != nullptr && interrupts->Wait(STDOUT_FILENO, POLLOUT) ==
                                         Interrupts::Woken::kSignal) {
          return Cancelled("the answer was cancelled");
        }
        PrintPlain(chunk.text);
        take(chunk);
        return OkStatus();
      },
      interrupts == nullptr ? -1 : interrupts->fd());
  PrintPlain("\n");
  return done;
}

Status Converse(const http::BaseUrl& base, const ChatSettings& settings,
                Interrupts& interrupts) {
  SLUICE_ASSIGN_OR_RETURN(
      const chat::Server server,
      chat::FindServer(base, settings.dialect, settings.model));
  chat::ConversationOptions options;
  options.start = {settings.system, settings.sampling, {}};
  if (!settings.no_history) {
    options.history_path = StateFolder() + "/chat_history";
  }
  options.signals = {interrupts.fd(), [&] { return interrupts.Take(); }};
  SLUICE_ASSIGN_OR_RETURN(const int signal, chat::Converse(server, options));
  return signal == 0 ? OkStatus() : InterruptedBy(signal);
}

Status AnswerPrompt(const http::BaseUrl& base, const ChatSettings& settings,
                    const std::string& prompt, Interrupts& interrupts) {
  SLUICE_ASSIGN_OR_RETURN(Json body, BodyOf(base, settings));
  const char* target = "/v1/chat/completions";
  if (LacksChatTemplate(base)) {
    if (settings.system) {
      return InvalidArgument(
          "--system: the model has no chat template, it completes the prompt");
    }
    target = "/v1/completions";
    body["prompt"] = prompt;
  } else {
    Json messages = FirstMessages(settings);
    messages.push_back({{"role", "user"}, {"content", prompt}});
    body["messages"] = std::move(messages);
  }
  const Status done = StreamAnswer(base, target, body, &interrupts,
                                   [](const load::StreamChunk&) {});
  if (const int signal = interrupts.Take(); signal != 0) {
    return InterruptedBy(signal);
  }
  return done;
}

}  // namespace sluice::cli
