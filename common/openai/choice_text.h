#ifndef SLUICE_COMMON_OPENAI_CHOICE_TEXT_H_
#define SLUICE_COMMON_OPENAI_CHOICE_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/core/generate_request.h"
#include "common/openai/model_text.h"
#include "common/openai/stop_matcher.h"
#include "common/text/output/output_parser.h"

namespace sluice::gateway {

// What one tool call gained. `id` and `name` come whole, when it begins;
// later pieces have them empty.
struct CallDelta {
  int index = 0;
  std::string id;
  std::string name;
  std::string arguments;
};

// What one choice gained: text that may be shown, and the tokens it came
// with. Text can lag behind tokens, which is why either may be empty.
struct Delta {
  std::string text;  // the content
  std::string reasoning;
  std::vector<CallDelta> calls;
  std::vector<TokenId> token_ids;
  std::vector<TokenResult> logprobs;  // if asked for, echo's before
  // If asked for: entry i tells of prompt token i + 1.
  std::vector<TokenResult> prompt_logprobs;
  std::optional<FinishReason> finish;
  bool called = false;  // with `finish`: tools were called, none was cut
  // With `finish`: the stop string, or the one of the client's stop tokens,
  // that ended it.
  std::optional<std::variant<std::string, TokenId>> stop_reason;

  void Append(Delta other);
  // Joined to the last piece if that is of the same call.
  void AddCall(CallDelta call);
};

struct ChoiceTextOptions {
  StopStrings stop;
  std::vector<TokenId> stop_token_ids;  // the client's
  int64_t min_tokens = 0;     // no stop string is looked for in the first ones
  bool include_stop = false;  // what ended the text is shown
  bool skip_special = true;   // special tokens are not shown
  bool logprobs = false;
  bool echo = false;  // the prompt's logprobs come before the completion's
  // Tops of echo's logprobs: the prompt may have been asked for more.
  int num_echo_tops = 0;
  bool prompt_logprobs = false;
  std::string echo_text;  // comes before the first token's text
  // Tells reasoning and tool calls from content; null: all is content. Of
  // this choice alone.
  std::shared_ptr<OutputParser> parser;
  // The model's own end tokens: what ends with another one was cut short.
  std::vector<TokenId> eos_ids;
  std::string call_ids;        // a call's id is this and its index
  bool parallel_calls = true;  // false: the first call ends the choice
};

// Tokens of one choice to deltas: detokenizes, tells reasoning and calls from
// content, finds stop strings (in the content alone), keeps logprobs beside
// their tokens. One thread.
class ChoiceText {
 public:
  ChoiceText(const ModelText& text, ChoiceTextOptions options,
             const std::vector<TokenId>& prompt);

  // A delta with a finish means that a stop string matched, or that the one
  // call allowed is complete: the caller cancels the sequence, and both
  // methods give nothing from then on.
  Delta OnTokens(const TokenEvent& event);
  // Whatever was held back, and why it ended.
  Delta OnEnd(const FinalEvent& event);

  bool ended() const { return ended_; }
  // Tokens so far, the end token included.
  int64_t completion_tokens() const { return completion_tokens_; }
  // Those of them that reasoning came with, the markup before it included.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  Delta Begin();
  // `text` is what the decoder gave for `token`.
  void Take(TokenId token, const std::string& text, Delta& delta);
  void TakeEvents(OutputEvents events, Delta& delta);
  void TakeContent(const std::string& text, Delta& delta);
  // What decoder, parser and stop strings held back.
  void TakeRest(const FinalEvent& event, Delta& delta);
  void End(FinishReason reason, Delta& delta);
  void TakePrompt(const TokenEvent& event, Delta& delta) const;

  ChoiceTextOptions options_;
  std::unique_ptr<TextDecoder> decoder_;
  StopMatcher stops_;
  std::optional<Delta> echo_;  // until it is given out
  int64_t completion_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  int64_t untold_tokens_ = 0;  // the latest, while nothing came of them
  bool called_ = false;
  bool in_call_ = false;  // a call began and is not complete
  bool ended_ = false;
};

}  // namespace sluice::gateway

#endif  // SLUICE_COMMON_OPENAI_CHOICE_TEXT_H_
