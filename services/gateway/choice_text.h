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
  std::vector<TokenResult> logprobs;  // if asked for, prompt's before
  std::optional<FinishReason> finish;

  void Append(Delta other);
};

struct ChoiceTextOptions {
  std::vector<std::string> stop;
  int64_t min_tokens = 0;  // no stop string is looked for in the first ones
  bool logprobs = false;
  bool echo = false;
  std::string echo_text;  // the prompt as text, if echo
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

  ChoiceTextOptions options_;
  std::unique_ptr<TextDecoder> decoder_;
  StopMatcher stops_;
  std::optional<Delta> echo_;  // until it is given out
  int64_t completion_tokens_ = 0;
  bool ended_ = false;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_CHOICE_TEXT_H_
