#include "common/tools/chat/prompt_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace sluice::chat {
namespace {

constexpr char kPrompt[] = "> ";

class EditedPrompts : public PromptReader {
 public:
  EditedPrompts(const SignalSource& signals, const std::string& path)
      : editor_(signals, history_) {
    StatusOr<History> history = History::Open(path);
    if (history.ok()) {
      history_ = *std::move(history);
    } else {
      std::fprintf(stderr, "no history is kept: %s\n",
                   Message(history.status()).c_str());
    }
  }

  Got Next(std::string& prompt) override {
    std::string text;
    switch (editor_.Read(kPrompt, text)) {
      case LineEditor::Got::kText:
        break;
      case LineEditor::Got::kEnd:
        return Got::kEnd;
      case LineEditor::Got::kInterrupt:
        signal_ = SIGINT;
        return Got::kSignal;
      case LineEditor::Got::kSignal:
        signal_ = editor_.signal();
        return Got::kSignal;
    }
    prompt = PromptOf(text);
    if (!prompt.empty()) {
      if (const Status kept = history_.Add(text); !kept.ok()) {
        std::fprintf(stderr, "the history is not kept: %s\n",
                     Message(kept).c_str());
      }
    }
    return Got::kPrompt;
  }

  int signal() const override { return signal_; }

 private:
  History history_;
  LineEditor editor_;
  int signal_ = 0;
};

// Lines of standard input, which a signal may come before.
class LinePrompts : public PromptReader {
 public:
  explicit LinePrompts(const SignalSource& signals)
      : signals_(signals), is_terminal_(::isatty(STDIN_FILENO) != 0) {}

  Got Next(std::string& prompt) override {
    std::string text;
    if (is_terminal_) std::fputs(kPrompt, stderr);
    for (;;) {
      std::string line;
      const Got got = NextLine(line);
      if (got == Got::kSignal && is_terminal_) std::fputs("\n", stderr);
      if (got == Got::kSignal || (got == Got::kEnd && text.empty())) return got;
      text += line;
      if (got == Got::kEnd || IsWholePrompt(text)) {
        prompt = PromptOf(text);
        return Got::kPrompt;
      }
      if (text.ends_with('\\')) text.pop_back();
      text += '\n';
    }
  }

  int signal() const override { return signal_; }

 private:
  Got NextLine(std::string& line) {
    for (;;) {
      const size_t end = bytes_.find('\n');
      if (end != std::string::npos) {
        line = bytes_.substr(0, end);
        bytes_.erase(0, end + 1);
        return Got::kPrompt;
      }
      pollfd waits[] = {{signals_.fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      while (::poll(waits, 2, -1) < 0 && errno == EINTR) {
      }
      if ((waits[0].revents & POLLIN) != 0) {
        signal_ = signals_.take();
        return Got::kSignal;
      }
      char more[4096];
      const ssize_t got = ::read(STDIN_FILENO, more, sizeof(more));
      if (got > 0) {
        bytes_.append(more, static_cast<size_t>(got));
      } else {
        line = std::exchange(bytes_, {});
        return line.empty() ? Got::kEnd : Got::kPrompt;
      }
    }
  }

  const SignalSource& signals_;
  const bool is_terminal_;
  std::string bytes_;  // read, and not yet a line
  int signal_ = 0;
};

}  // namespace

bool HasEditor() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0 &&
         term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

std::unique_ptr<PromptReader> OpenPrompts(const SignalSource& signals,
                                          const std::string& history_path) {
  if (!HasEditor()) return std::make_unique<LinePrompts>(signals);
  return std::make_unique<EditedPrompts>(signals, history_path);
}

}  // namespace sluice::chat
