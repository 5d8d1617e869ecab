#include "common/tools/chat/conversation.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/tools/chat/answer_view.h"
#include "common/tools/chat/prompt_reader.h"
#include "common/tools/chat/terminal_text.h"

namespace sluice::chat {
namespace {

constexpr char kHelp[] =
    "/clear            a new conversation; /reset is the same\n"
    "/retry            another answer to the last prompt\n"
    "/undo             takes the last prompt and its answer back\n"
    "/system [TEXT]    what the model is told first; without TEXT: nothing\n"
    "/set [NAME VALUE] a field of requests, as temperature 0.2; without VALUE\n"
    "                  it takes the server's default; alone: shows the fields\n"
    "/save FILE        writes the conversation, a body of "
    "/v1/chat/completions\n"
    "/load FILE        goes on with one\n"
    "/quit             ends, as Ctrl-D does\n"
    "//TEXT            a prompt that begins with /\n"
    "Ctrl-C stops an answer. Alt-Enter, a backslash before Enter, and \"\"\" "
    "around\na text make lines of one prompt; what is pasted waits for "
    "Enter.\n";

bool IsTerminal(int file) { return ::isatty(file) != 0; }

// Returns whether standard output shows styles.
bool HasStyles() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return IsTerminal(STDOUT_FILENO) &&
         (no_color == nullptr || *no_color == '\0') && term != nullptr &&
         *term != '\0' && std::string_view(term) != "dumb";
}

void Tell(const std::string& text) {
  std::fprintf(stderr, "%s\n", WithoutControls(text).c_str());
}

// Cuts the first word off `rest`.
std::string CutWord(std::string& rest) {
  const size_t end = std::min(rest.find_first_of(" \t\n"), rest.size());
  std::string word = rest.substr(0, end);
  const size_t next = rest.find_first_not_of(" \t\n", end);
  rest = next == std::string::npos ? "" : rest.substr(next);
  return word;
}

// Returns the path that a shell makes of ~/FILE.
std::string PathOfWord(const std::string& word) {
  const char* home = std::getenv("HOME");
  if (!word.starts_with("~/") || home == nullptr) return word;
  return home + word.substr(1);
}

class Conversation {
 public:
  Conversation(Server server, const ConversationOptions& options)
      : server_(std::move(server)), options_(options), said_(options.start) {}

  StatusOr<int> Run() {
    const auto prompts = OpenPrompts(options_.signals, options_.history_path);
    if (is_terminal_) {
      Tell(Cat(server_.model, ", ", NameOf(server_.dialect),
               ". /help lists commands, Ctrl-C ends an answer, Ctrl-D the "
               "chat."));
    }
    while (!is_over_) {
      std::string prompt;
      const PromptReader::Got got = prompts->Next(prompt);
      if (got == PromptReader::Got::kEnd) return 0;
      if (got == PromptReader::Got::kSignal) return prompts->signal();
      const Status done = Act(prompt);
      const int signal = options_.signals.take();
      if (signal != 0 && (signal != SIGINT || !is_terminal_)) return signal;
      if (done.ok() || done.code() == StatusCode::kCancelled) continue;
      if (!is_terminal_) return done;
      Tell(Message(done));
    }
    return 0;
  }

 private:
  Status Act(const std::string& prompt) {
    if (prompt.find_first_not_of(" \t\n") == std::string::npos) {
      return OkStatus();
    }
    if (!prompt.starts_with('/')) return Ask(prompt);
    if (prompt.starts_with("//")) return Ask(prompt.substr(1));
    std::string rest = prompt;
    const std::string command = CutWord(rest);
    return Command(command, rest);
  }

  Status Command(const std::string& command, std::string rest) {
    if (command == "/set") return Set(std::move(rest));
    if (command == "/save") return Save(rest);
    if (command == "/load") return Load(rest);
    if (command == "/system") {
      said_.system.reset();
      if (!rest.empty()) said_.system = rest;
      return OkStatus();
    }
    if (command == "/retry") return Retry();
    if (command == "/undo") return Undo();
    if (command == "/clear" || command == "/reset") {
      said_.messages = options_.start.messages;
    } else if (command == "/quit") {
      is_over_ = true;
    } else if (command == "/help") {
      std::fputs(kHelp, stderr);
    } else {
      return InvalidArgument("there is no command ", command,
                             ": /help lists them; // begins a prompt with /");
    }
    return OkStatus();
  }

  Status Set(std::string rest) {
    if (rest.empty()) {
      if (said_.system) Tell(Cat("/system ", *said_.system));
      for (const auto& [name, value] : said_.settings.items()) {
        Tell(Cat("/set ", name, " ", DumpJson(value)));
      }
      return OkStatus();
    }
    const std::string name = CutWord(rest);
    if (IsOwnField(name)) {
      return InvalidArgument("/set: the conversation itself fills '", name,
                             "'");
    }
    if (rest.empty()) {
      said_.settings.erase(name);
      return OkStatus();
    }
    const StatusOr<Json> value = ParseJson(rest);
    said_.settings[name] = value.ok() ? *value : Json(rest);
    return OkStatus();
  }

  Status Save(const std::string& file) {
    if (file.empty()) return InvalidArgument("/save FILE");
    return SaveTranscript(said_, PathOfWord(file));
  }

  Status Load(const std::string& file) {
    if (file.empty()) return InvalidArgument("/load FILE");
    SLUICE_ASSIGN_OR_RETURN(said_, LoadTranscript(PathOfWord(file)));
    if (is_terminal_) Tell(Cat(said_.messages.size(), " messages"));
    return OkStatus();
  }

  // Takes the last answer back, then the last prompt.
  Status Undo() {
    auto& messages = said_.messages;
    if (messages.empty()) return FailedPrecondition("/undo: nothing was said");
    if (!messages.back().is_user) messages.pop_back();
    if (!messages.empty() && messages.back().is_user) messages.pop_back();
    return OkStatus();
  }

  Status Retry() {
    Transcript said = said_;
    if (!said.messages.empty() && !said.messages.back().is_user) {
      said.messages.pop_back();
    }
    if (said.messages.empty()) {
      return FailedPrecondition("/retry: there is no prompt to answer");
    }
    return Answer(std::move(said));
  }

  Status Ask(const std::string& prompt) {
    Transcript said = said_;
    said.messages.push_back({true, prompt});
    return Answer(std::move(said));
  }

  // Shows the answer to `said`. What was said is then `said` and the answer, as
  // far as that came; without an answer it stays as it was.
  Status Answer(Transcript said) {
    AnswerView view(
        {HasStyles(), IsTerminal(STDOUT_FILENO), SizeOfTerminal().columns});
    const TimePoint asked = Clock::now();
    const Status done = StreamAnswer(
        server_, said,
        [&](const AnswerPart& part) -> Status {
          const std::string more = view.Add(part, Clock::now());
          SLUICE_RETURN_IF_ERROR(WaitForReader());
          Show(more);
          return OkStatus();
        },
        options_.signals.fd);
    Show(view.Finish());
    if (done.ok() || !view.text().empty()) {
      said.messages.push_back({false, view.text()});
      said_ = std::move(said);
    }
    if (done.ok() && HasEditor())
      ShowFigures(view.Figures(asked, Clock::now()));
    return done;
  }

  // A reader that takes nothing keeps no signal from acting.
  Status WaitForReader() const {
    pollfd waits[] = {{options_.signals.fd, POLLIN, 0},
                      {STDOUT_FILENO, POLLOUT, 0}};
    while (::poll(waits, 2, -1) < 0 && errno == EINTR) {
    }
    if ((waits[0].revents & POLLIN) == 0) return OkStatus();
    return Cancelled("the answer was cancelled");
  }

  static void Show(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  static void ShowFigures(const std::string& figures) {
    StyledText dim;
    dim.Put(HasStyles() ? kDim : Style(), figures);
    std::fprintf(stderr, "%s\n", dim.Take().c_str());
  }

  const Server server_;
  const ConversationOptions& options_;
  const bool is_terminal_ = IsTerminal(STDIN_FILENO);
  Transcript said_;
  bool is_over_ = false;
};

}  // namespace

StatusOr<int> Converse(const Server& server,
                       const ConversationOptions& options) {
  return Conversation(server, options).Run();
}

}  // namespace sluice::chat
