#include "services/gateway/choice_text.h"

#include <iterator>
#include <utility>

namespace sluice::gateway {

void Delta::Append(Delta other) {
  text += other.text;
  token_ids.insert(token_ids.end(), other.token_ids.begin(),
                   other.token_ids.end());
  logprobs.insert(logprobs.end(),
                  std::make_move_iterator(other.logprobs.begin()),
                  std::make_move_iterator(other.logprobs.end()));
  if (other.finish) finish = other.finish;
}

ChoiceText::ChoiceText(const ModelText& text, ChoiceTextOptions options,
                       const std::vector<TokenId>& prompt)
    : options_(std::move(options)),
      decoder_(text.NewDecoder(prompt)),
      stops_(options_.stop) {
  if (!options_.echo) return;
  echo_.emplace();
  echo_->text = options_.echo_text;
  // Nothing comes before the first token, so it has no logprob.
  if (options_.logprobs) echo_->logprobs.push_back({prompt.front(), {}, {}});
}

Delta ChoiceText::Begin() {
  Delta delta;
  if (echo_) delta = *std::exchange(echo_, std::nullopt);
  return delta;
}

Delta ChoiceText::OnTokens(const TokenEvent& event) {
  if (ended_) return {};
  Delta delta = Begin();
  if (options_.logprobs && options_.echo) {
    delta.logprobs.insert(delta.logprobs.end(), event.prompt.begin(),
                          event.prompt.end());
  }
  for (const TokenResult& token : event.tokens) {
    delta.token_ids.push_back(token.token);
    if (options_.logprobs) delta.logprobs.push_back(token);
    const std::string piece = decoder_->Push(token.token);
    if (++completion_tokens_ <= options_.min_tokens) {
      delta.text += piece;
      continue;
    }
    delta.text += stops_.Push(piece);
    if (stops_.matched()) {
      ended_ = true;
      delta.finish = FinishReason::kStop;
      break;
    }
  }
  return delta;
}

Delta ChoiceText::OnEnd(const FinalEvent& event) {
  if (ended_) return {};
  ended_ = true;
  Delta delta = Begin();
  delta.finish = event.reason;
  if (event.stop_token) {
    ++completion_tokens_;
    delta.token_ids.push_back(*event.stop_token);
    // Evaluations count on one entry per token, the end token included.
    if (options_.logprobs && event.stop_result.logprob) {
      delta.logprobs.push_back(event.stop_result);
    }
  }
  delta.text += stops_.Push(decoder_->Finish());
  delta.text += stops_.Finish();
  if (stops_.matched()) delta.finish = FinishReason::kStop;
  return delta;
}

}  // namespace sluice::gateway
