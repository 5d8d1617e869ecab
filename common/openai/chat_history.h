#ifndef SLUICE_COMMON_OPENAI_CHAT_HISTORY_H_
#define SLUICE_COMMON_OPENAI_CHAT_HISTORY_H_

#include <string>

#include "common/base/json_fwd.h"

namespace sluice {
class ChatTemplate;
}  // namespace sluice

namespace sluice::openai {

// What a chat template asks of tools and of an assistant's earlier messages.
struct HistoryRules {
  // The member that it reads the reasoning from: "reasoning_content" (GLM,
  // Qwen), "thinking" (gpt-oss); empty: it shows none.
  std::string reasoning;
  // Refuses content beside reasoning in a message with calls (gpt-oss).
  bool content_or_reasoning = false;
  // Shows, or takes, one call per message (gpt-oss, Llama 3).
  bool one_call = false;
  // Fails for a tool without a description (gpt-oss).
  bool described_tools = false;
  bool operator==(const HistoryRules&) const = default;
};

// Learnt from what the template makes of messages made up for it, never from
// a model's name.
HistoryRules LearnHistoryRules(const ChatTemplate& chat_template);

// `messages` (ChatRequest's) as the template wants them: the reasoning by its
// name; where it cannot stand beside content, in front of it as one text. The
// results of several calls come in the calls' order (templates show no ids).
// Where one call fits in a message, each has its own, with its result behind
// it, and the first one has all else that the message says: nothing is copied.
// A result is never shown as another call's. Results that do not tell by their
// ids whose they are go to the calls without one, in order.
Json AdaptHistory(Json messages, const HistoryRules& rules);

// `tools` (ToolFields'), with empty descriptions where there must be one.
Json AdaptTools(Json tools, const HistoryRules& rules);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_CHAT_HISTORY_H_
