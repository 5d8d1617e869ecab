#ifndef SLUICE_COMMON_TOOLS_CHAT_PROMPT_READER_H_
#define SLUICE_COMMON_TOOLS_CHAT_PROMPT_READER_H_

#include <memory>
#include <string>

#include "common/tools/chat/line_editor.h"

namespace sluice::chat {

// Where prompts come from: a person at an editor, or lines. Threadless.
class PromptReader {
 public:
  virtual ~PromptReader() = default;

  enum class Got { kPrompt, kEnd, kSignal };
  // Waits for a prompt, a command included. kSignal: a signal ends the
  // conversation; `signal` tells which.
  virtual Got Next(std::string& prompt) = 0;
  virtual int signal() const = 0;
};

// Returns the reader of standard input: with an editor, and a history in the
// file `history_path`, where input and standard error are a terminal that has a
// cursor. `signals` outlives it.
std::unique_ptr<PromptReader> OpenPrompts(const SignalSource& signals,
                                          const std::string& history_path);

// Returns whether the editor is used.
bool HasEditor();

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_PROMPT_READER_H_
