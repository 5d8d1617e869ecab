#ifndef SLUICE_COMMON_TOOLS_CHAT_LINE_EDITOR_H_
#define SLUICE_COMMON_TOOLS_CHAT_LINE_EDITOR_H_

#include <termios.h>

#include <deque>
#include <functional>
#include <string>

#include "common/tools/chat/edit_buffer.h"
#include "common/tools/chat/history.h"
#include "common/tools/chat/keys.h"

namespace sluice::chat {

// Signals as input: `fd` can be read once a signal has come that `take` has not
// returned; `take` returns the latest one, or 0.
struct SignalSource {
  int fd = -1;
  std::function<int()> take = [] { return 0; };
};

// Reads texts of several lines from standard input, a terminal, and draws them
// on standard error, the same one. While the object lives, the terminal echoes
// nothing but what the editor draws; keys that come between two texts are the
// next one's. Needs nothing of a terminal but ANSI's sequences. Threadless.
class LineEditor {
 public:
  // `signals` and `history` outlive the object.
  LineEditor(const SignalSource& signals, History& history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Got { kText, kEnd, kInterrupt, kSignal };
  // Reads a text. kEnd: Ctrl-D at an
  // empty prompt, or the terminal is gone; kInterrupt: Ctrl-C likewise, twice;
  // kSignal: any other signal than SIGINT, which is Ctrl-C.
  Got Read(const std::string& prompt, std::string& text);

  int signal() const { return signal_; }  // of kSignal

 private:
  enum class Then { kGoOn, kText, kEnd, kInterrupt };

  void SetRaw(bool is_raw);
  bool ReadKeys();
  Then Act(const Key& key);
  bool Edit(const Key& key);
  Then Enter();
  Then Interrupt();
  void Older();
  void Newer();
  void ShowEntry(size_t entry);
  void Suspend();
  void Draw(bool is_last);

  const SignalSource& signals_;
  History& history_;
  termios cooked_;
  KeyReader reader_;
  std::deque<Key> keys_;  // read, and not acted upon
  int signal_ = 0;

  // Of one text.
  std::string prompt_;
  EditBuffer buffer_;
  size_t entry_ = 0;      // the history's that is shown; its size: a new text
  std::string new_text_;  // while an entry is shown
  size_t drawn_row_ = 0;  // the cursor's, from the first one that is drawn
  bool was_interrupt_ = false;  // the last key was Ctrl-C at an empty prompt
};

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// Returns the size of the terminal on standard error or output; 80 by 24 if it
// tells none.
TerminalSize SizeOfTerminal();

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_LINE_EDITOR_H_
