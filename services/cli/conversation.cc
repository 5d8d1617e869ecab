#include "services/cli/conversation.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "common/base/json_member.h"
#include "common/tools/load/server_queries.h"

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

// Lines of standard input, which a signal may come before.
class LineReader {
 public:
  explicit LineReader(const Interrupts& interrupts) : interrupts_(interrupts) {}

  enum class Got { kLine, kEnd, kSignal };
  Got Next(std::string& line) {
    for (;;) {
      const size_t end = bytes_.find('\n');
      if (end != std::string::npos) {
        line = bytes_.substr(0, end);
        bytes_.erase(0, end + 1);
        return Got::kLine;
      }
      if (interrupts_.Wait(STDIN_FILENO, POLLIN) ==
          Interrupts::Woken::kSignal) {
        return Got::kSignal;
      }
      char more[4096];
      const ssize_t got = ::read(STDIN_FILENO, more, sizeof(more));
      if (got > 0) {
        bytes_.append(more, static_cast<size_t>(got));
      } else {
        line = std::exchange(bytes_, {});
        return line.empty() ? Got::kEnd : Got::kLine;
      }
    }
  }

 private:
  const Interrupts& interrupts_;
  std::string bytes_;  // read, and not yet a line
};

// Streams the answer to `messages` and appends it to them, as far as it came.
Status AnswerMessages(const http::BaseUrl& base, Json body, Json& messages,
                      const Interrupts& interrupts) {
  body["messages"] = messages;
  std::string answer;
  const Status done = StreamAnswer(
      base, "/v1/chat/completions", body, &interrupts,
      [&](const load::StreamChunk& chunk) { answer += chunk.text; });
  if (done.ok() || !answer.empty()) {
    messages.push_back({{"role", "assistant"}, {"content", answer}});
  }
  return done;
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
  AddSampling(app, settings.sampling);
}

void PrintPlain(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 32 ? byte != 127 : c == '\n' || c == '\t') std::putchar(c);
  }
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
  SLUICE_ASSIGN_OR_RETURN(const Json body, BodyOf(base, settings));
  const Json first = FirstMessages(settings);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) {
    std::fprintf(stderr,
                 "%s. /reset starts anew, Ctrl-C ends an answer, Ctrl-D the "
                 "conversation.\n",
                 FindText(body, "model").c_str());
  }
  LineReader lines(interrupts);
  Json messages = first;
  for (;;) {
    if (terminal) std::fprintf(stderr, "> ");
    std::string line;
    const LineReader::Got got = lines.Next(line);
    if (got == LineReader::Got::kEnd) return OkStatus();
    if (got == LineReader::Got::kSignal) {
      if (terminal) std::fprintf(stderr, "\n");
      return InterruptedBy(interrupts.Take());
    }
    if (line == "/reset") {
      messages = first;
    } else if (!line.empty()) {
      messages.push_back({{"role", "user"}, {"content", line}});
      const size_t asked = messages.size();
      const Status answered = AnswerMessages(base, body, messages, interrupts);
      const int signal = interrupts.Take();
      if (signal != 0 && (signal != SIGINT || !terminal)) {
        return InterruptedBy(signal);
      }
      if (!answered.ok() && !terminal) return answered;
      if (!answered.ok()) {
        // Without an answer, as if the user had not asked.
        if (messages.size() == asked) messages.erase(asked - 1);
        if (answered.code() != StatusCode::kCancelled) {
          std::fprintf(stderr, "%s\n", Message(answered).c_str());
        }
      }
    }
  }
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
