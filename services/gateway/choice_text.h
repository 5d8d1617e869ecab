#ifndef SLUICE_SERVICES_GATEWAY_CHOICE_TEXT_H_
#define SLUICE_SERVICES_GATEWAY_CHOICE_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/core/generate_request.h"
#include "services/gateway/model_text.h"
#include "services/gateway/stop_matcher.h"

namespace sluice::gateway {

// What one choice gained: text that may be shown, and the tokens it came
// with. Text can lag behind tokens, which is why either may be empty.
struct Delta {
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<TokenResult> logprobs;  // if asked for, echo's before
  // If asked for: entry i tells of prompt token i + 1.
  std::vector<TokenResult> prompt_logprobs;
  std::optional<FinishReason> finish;

  void Append(Delta other);
};

struct ChoiceTextOptions {
  std::vector<std::string> stop;
  int64_t min_tokens = 0;     // no stop string is looked for in the first ones
  bool include_stop = false;  // what ended the text is shown
  bool skip_special = true;   // special tokens are not shown
  bool logprobs = false;
  bool echo = false;  // the prompt's logprobs come before the completion's
  // Tops of echo's logprobs: the prompt may have been asked for more.
  int num_echo_tops = 0;
  bool prompt_logprobs = false;
  std::string echo_text;  // comes before the first token's text
};

// Tokens of one choice to deltas: detokenizes, finds stop strings, keeps
// logprobs beside their tokens. One thread.
class ChoiceText {
 public:
  ChoiceText(const ModelText& text, ChoiceTextOptions options,
             const std::vector<TokenId>& prompt);

  // A delta with a finish means that a stop string matched: the caller
  // cancels the sequence, and both methods give nothing from then on.
  Delta OnTokens(const TokenEvent& event);
  // Whatever was held back, and why it ended.
  Delta OnEnd(const FinalEvent& event);

  bool ended() const { return ended_; }
  // Tokens so far, the end token included.
  int64_t completion_tokens() const { return completion_tokens_; }

 private:
  Delta Begin();
  void TakePrompt(const TokenEvent& event, Delta& delta) const;

  ChoiceTextOptions options_;
  std::unique_ptr<TextDecoder> decoder_;
  StopMatcher stops_;
  std::optional<Delta> echo_;  // until it is given out
  int64_t completion_tokens_ = 0;
  bool ended_ = false;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_CHOICE_TEXT_H_
