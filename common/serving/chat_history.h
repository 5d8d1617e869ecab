#ifndef SLUICE_COMMON_SERVING_CHAT_HISTORY_H_
#define SLUICE_COMMON_SERVING_CHAT_HISTORY_H_

#include <string>

#include "common/base/json_fwd.h"

namespace sluice {
class ChatTemplate;
}  // namespace sluice

namespace sluice::serving {

// The form of calls' ids.
enum class IdForm {
  kAny,
  kNine,      // nine letters and digits (Mistral)
  kNumbered,  // functions.NAME:0, counted over the chat (Kimi)
};

// The form of tools and assistant messages that a chat template needs.
struct HistoryRules {
  // The member with the reasoning: "reasoning_content" (GLM, Qwen), "thinking"
  // (gpt-oss); empty: the template shows none.
  std::string reasoning;
  // The template refuses content beside reasoning in a message with calls
  // (gpt-oss).
  bool content_or_reasoning = false;
  // The template shows or accepts one call per message (gpt-oss, Llama 3).
  bool one_call = false;
  // The template fails for a tool without a description (gpt-oss).
  bool described_tools = false;
  // kNumbered is the model's, which a template that shows ids does not tell.
  IdForm ids = IdForm::kAny;
  // The template shows tools of a system message alone (Phi-4).
  bool tools_in_system = false;
  // The template refuses or drops a system message within the chat (Mistral,
  // gpt-oss).
  bool system_first = false;
  // The template refuses two messages of the user in a row, or drops the first
  // (Mistral, Gemma).
  bool one_user = false;
  // The template refuses the user's message behind a call's result (Mistral).
  bool reply_to_result = false;
  bool operator==(const HistoryRules&) const = default;
};

// Learns the rules from renderings of made-up messages, never from a model's
// name.
HistoryRules LearnHistoryRules(const ChatTemplate& chat_template);

// Returns `messages` (of a ChatRequest) in the template's form. Reasoning has
// the template's name, or stands before the content as one text. Results of
// several calls follow the calls' order, since templates show no ids. With
// one_call each call has a message of its own, with its result behind it; the
// first one keeps the message's other members, and nothing is copied. A result
// never moves to another call with an id; a result without a matching id goes
// to the next call without a result. Ids that are not of the form are replaced,
// in results, too. With system_first a system message within the chat is the
// user's, in one message with what the user says next to it. With one_user what
// the user says in a row is one message; with reply_to_result an assistant's
// message of a space stands between a result and what the user says.
Json AdaptHistory(Json messages, const HistoryRules& rules);

// Returns `tools` (of ToolFields), with empty descriptions where the template
// needs one.
Json AdaptTools(Json tools, const HistoryRules& rules);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_CHAT_HISTORY_H_
