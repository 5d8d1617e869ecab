#ifndef SLUICE_COMMON_OPENAI_CHOICE_TEXT_H_
#define SLUICE_COMMON_OPENAI_CHOICE_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/core/generate_request.h"
#include "common/openai/model_text.h"
#include "common/openai/stop_matcher.h"
#include "common/text/detokenizer.h"
#include "common/text/output/output_parser.h"

namespace sluice::openai {

// What one tool call gained. `id` and `name` come whole, when it begins;
// later pieces have them empty.
struct CallDelta {
  int index = 0;
  std::string id;
  std::string name;
  std::string arguments;
};

// What is told of some of a prompt's tokens, shared by its choices.
using PromptResults = std::shared_ptr<const std::vector<TokenResult>>;

// One token's log probabilities as they are shown.
struct ShownLogprob {
  TokenId token = 0;
  const TokenLogprob* logprob = nullptr;  // null: it has none
  std::span<const TokenLogprob> tops;
};

// What one choice gained: text that may be shown, and the tokens it came
// with. Text can lag behind tokens, which is why either may be empty.
struct Delta {
  std::string text;  // the content
  std::string reasoning;
  std::vector<CallDelta> calls;
  std::vector<TokenId> token_ids;
  std::vector<TokenResult> logprobs;  // if asked for
  // If asked for: entry i of all together tells of prompt token i + 1.
  std::vector<PromptResults> prompt;
  std::vector<size_t> prompt_ends;  // entries of `prompt` up to each part's end
  // With echo: its first token, which has no logprob, and what `prompt` tells,
  // with so many tops, are shown before `logprobs`.
  std::optional<TokenId> echo_begin;
  bool echoes_prompt = false;
  size_t num_echo_tops = 0;
  std::optional<FinishReason> finish;
  bool called = false;  // with `finish`: tools were called, none was cut
  // With `finish`: the stop string, or the one of the client's stop tokens,
  // that ended it.
  std::optional<std::variant<std::string, TokenId>> stop_reason;

  void Append(Delta other);
  // Content and tokens without log probabilities, and nothing else.
  bool has_text_alone() const {
    return !text.empty() && reasoning.empty() && calls.empty() &&
           logprobs.empty() && prompt.empty() && !echo_begin && !finish;
  }
  // Of the echo and `logprobs` together.
  size_t num_shown() const;
  ShownLogprob shown(size_t index) const;
  void AddPrompt(const std::vector<PromptResults>& parts);
  // Of the entries of `prompt`.
  size_t num_prompt() const;
  const TokenResult& prompt_at(size_t index) const;
  // About how long it is as JSON.
  size_t EstimatedBytes() const;
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
  // `prompt` is what the event, whose own is not looked at, tells of that.
  Delta OnTokens(const TokenEvent& event,
                 const std::vector<PromptResults>& prompt = {});
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
  void TakePrompt(const std::vector<PromptResults>& prompt, Delta& delta) const;

  ChoiceTextOptions options_;
  Detokenizer decoder_;
  StopMatcher stops_;
  std::optional<Delta> echo_;  // until it is given out
  int64_t completion_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  int64_t untold_tokens_ = 0;  // the latest, while nothing came of them
  bool called_ = false;
  bool in_call_ = false;  // a call began and is not complete
  bool ended_ = false;
};

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_OPENAI_CHOICE_TEXT_H_
