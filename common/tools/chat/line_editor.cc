#include "common/tools/chat/line_editor.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

namespace sluice::chat {
namespace {

using Kind = Key::Kind;

constexpr char kPasteMarks[] = "\x1b[?2004h";
constexpr char kNoPasteMarks[] = "\x1b[?2004l";
constexpr char kEraseBelow[] = "\x1b[J";
constexpr char kEraseAll[] = "\x1b[H\x1b[2J";

struct EditOfKey {
  Kind kind;
  void (EditBuffer::*edit)();
};
constexpr EditOfKey kEdits[] = {
    {Kind::kNewLine, &EditBuffer::NewLine},
    {Kind::kBackspace, &EditBuffer::EraseBefore},
    {Kind::kDelete, &EditBuffer::EraseBehind},
    {Kind::kDeleteOrEnd, &EditBuffer::EraseBehind},
    {Kind::kLeft, &EditBuffer::Left},
    {Kind::kRight, &EditBuffer::Right},
    {Kind::kWordLeft, &EditBuffer::WordLeft},
    {Kind::kWordRight, &EditBuffer::WordRight},
    {Kind::kLineBegin, &EditBuffer::LineBegin},
    {Kind::kLineEnd, &EditBuffer::LineEnd},
    {Kind::kEraseWord, &EditBuffer::EraseWord},
    {Kind::kEraseToLineBegin, &EditBuffer::EraseToLineBegin},
    {Kind::kEraseToLineEnd, &EditBuffer::EraseToLineEnd},
    {Kind::kYank, &EditBuffer::Yank},
};

void Print(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

TerminalSize SizeOfTerminal() {
  for (const int file : {STDERR_FILENO, STDOUT_FILENO}) {
    winsize size = {};
    if (::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 &&
        size.ws_row > 0) {
      return {size.ws_col, size.ws_row};
    }
  }
  return {};
}

LineEditor::LineEditor(const SignalSource& signals, History& history)
    : signals_(signals), history_(history) {
  ::tcgetattr(STDIN_FILENO, &cooked_);
  SetRaw(false);
}

LineEditor::~LineEditor() { ::tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked_); }

// Keys come one by one and are not shown. Raw: Ctrl-C is a key, too.
void LineEditor::SetRaw(bool is_raw) {
  termios mode = cooked_;
  mode.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN);
  if (is_raw) {
    mode.c_lflag &= ~static_cast<tcflag_t>(ISIG);
    mode.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
  }
  mode.c_cc[VMIN] = 1;
  mode.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
}

LineEditor::Got LineEditor::Read(const std::string& prompt, std::string& text) {
  prompt_ = prompt;
  buffer_ = {};
  entry_ = history_.entries().size();
  drawn_row_ = 0;
  was_interrupt_ = false;
  SetRaw(true);
  Print(kPasteMarks);
  Draw(false);
  Then then = Then::kGoOn;
  while (then == Then::kGoOn) {
    if (keys_.empty() && !ReadKeys()) break;
    while (then == Then::kGoOn && !keys_.empty()) {
      const Key key = std::move(keys_.front());
      keys_.pop_front();
      then = Act(key);
    }
    if (then == Then::kGoOn && keys_.empty()) Draw(false);
  }
  Draw(true);
  Print(kNoPasteMarks);
  SetRaw(false);
  text = buffer_.text();
  switch (then) {
    case Then::kText:
      return Got::kText;
    case Then::kInterrupt:
      return Got::kInterrupt;
    default:
      return signal_ != 0 ? Got::kSignal : Got::kEnd;
  }
}

// Waits for keys; false: a signal has come, or the terminal is gone.
bool LineEditor::ReadKeys() {
  pollfd waits[] = {{signals_.fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  while (::poll(waits, 2, -1) < 0) {
    if (errno != EINTR) return false;
  }
  if ((waits[0].revents & POLLIN) != 0) {
    const int signal = signals_.take();
    if (signal == SIGINT) {
      keys_.push_back({Kind::kInterrupt, ""});
    } else {
      signal_ = signal;
    }
    return signal_ == 0;
  }
  char bytes[4096];
  const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
  if (got <= 0) return got < 0 && errno == EINTR;
  for (Key& key : reader_.Feed({bytes, static_cast<size_t>(got)})) {
    keys_.push_back(std::move(key));
  }
  return true;
}

LineEditor::Then LineEditor::Act(const Key& key) {
  if (key.kind == Kind::kInterrupt) return Interrupt();
  was_interrupt_ = false;
  if (key.kind == Kind::kEnter) return Enter();
  if (key.kind == Kind::kDeleteOrEnd && buffer_.text().empty()) {
    return Then::kEnd;
  }
  if (Edit(key)) return Then::kGoOn;
  switch (key.kind) {
    case Kind::kUp:
      if (!buffer_.Up()) Older();
      break;
    case Kind::kDown:
      if (!buffer_.Down()) Newer();
      break;
    case Kind::kOlder:
      Older();
      break;
    case Kind::kNewer:
      Newer();
      break;
    case Kind::kClear:
      Print(kEraseAll);
      drawn_row_ = 0;
      break;
    case Kind::kSuspend:
      Suspend();
      break;
    default:
      break;
  }
  return Then::kGoOn;
}

// Returns whether the key changes the text, or moves within it.
bool LineEditor::Edit(const Key& key) {
  if (key.kind == Kind::kText || key.kind == Kind::kPaste) {
    buffer_.Insert(key.text);
    return true;
  }
  for (const auto& [kind, edit] : kEdits) {
    if (kind != key.kind) continue;
    (buffer_.*edit)();
    return true;
  }
  return false;
}

LineEditor::Then LineEditor::Enter() {
  if (IsWholePrompt(buffer_.text())) return Then::kText;
  buffer_.Set(buffer_.text());  // the cursor is behind the last line
  if (buffer_.text().ends_with('\\')) buffer_.EraseBefore();
  buffer_.NewLine();
  return Then::kGoOn;
}

LineEditor::Then LineEditor::Interrupt() {
  if (buffer_.text().empty() && was_interrupt_) return Then::kInterrupt;
  was_interrupt_ = buffer_.text().empty();
  Draw(true);
  if (was_interrupt_) Print("Ctrl-C again, or Ctrl-D, ends the conversation\n");
  buffer_ = {};
  entry_ = history_.entries().size();
  drawn_row_ = 0;
  return Then::kGoOn;
}

void LineEditor::ShowEntry(size_t entry) {
  const auto& entries = history_.entries();
  if (entry_ == entries.size()) new_text_ = buffer_.text();
  entry_ = entry;
  buffer_.Set(entry == entries.size() ? new_text_ : entries[entry]);
}

void LineEditor::Older() {
  if (entry_ > 0) ShowEntry(entry_ - 1);
}

void LineEditor::Newer() {
  if (entry_ < history_.entries().size()) ShowEntry(entry_ + 1);
}

void LineEditor::Suspend() {
  Draw(true);
  Print(kNoPasteMarks);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked_);
  ::raise(SIGTSTP);
  SetRaw(true);
  Print(kPasteMarks);
  drawn_row_ = 0;
}

// Draws prompt and text where they were drawn last. `is_last`: the cursor goes
// behind them, to a line of its own.
void LineEditor::Draw(bool is_last) {
  const TerminalSize size = SizeOfTerminal();
  const Layout layout =
      LayOut(prompt_, buffer_, size.columns, static_cast<size_t>(size.rows));
  std::string out = "\r";
  if (drawn_row_ > 0) out += "\x1b[" + std::to_string(drawn_row_) + "A";
  out += kEraseBelow;
  for (size_t row = 0; row < layout.rows.size(); ++row) {
    out += (row > 0 ? "\r\n" : "") + layout.rows[row];
  }
  if (is_last) {
    Print(out + "\r\n");
    return;
  }
  const size_t below = layout.rows.size() - 1 - layout.cursor_row;
  if (below > 0) out += "\x1b[" + std::to_string(below) + "A";
  out += "\r";
  if (layout.cursor_column > 0) {
    out += "\x1b[" + std::to_string(layout.cursor_column) + "C";
  }
  drawn_row_ = layout.cursor_row;
  Print(out);
}

}  // namespace sluice::chat
