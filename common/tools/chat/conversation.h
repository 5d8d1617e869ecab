#ifndef SLUICE_COMMON_TOOLS_CHAT_CONVERSATION_H_
#define SLUICE_COMMON_TOOLS_CHAT_CONVERSATION_H_

#include <string>

#include "common/base/status.h"
#include "common/tools/chat/dialect.h"
#include "common/tools/chat/line_editor.h"
#include "common/tools/chat/transcript.h"

namespace sluice::chat {

struct ConversationOptions {
  Transcript start;          // what every conversation begins with
  std::string history_path;  // of typed prompts; empty: they are not kept
  SignalSource signals;
};

// Answers the prompts of standard input, with what was said before, until it
// ends; carries out its commands (/help). On a terminal Ctrl-C ends an answer,
// and twice at an empty prompt the conversation; an error is shown, and the
// conversation goes on. Without a terminal both end it. Returns the signal that
// ended it, or 0.
StatusOr<int> Converse(const Server& server,
                       const ConversationOptions& options);

}  // namespace sluice::chat

#endif  // SLUICE_COMMON_TOOLS_CHAT_CONVERSATION_H_
