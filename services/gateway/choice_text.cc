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
  prompt_logprobs.insert(prompt_logprobs.end(),
                         std::make_move_iterator(other.prompt_logprobs.begin()),
                         std::make_move_iterator(other.prompt_logprobs.end()));
  if (other.finish) finish = other.finish;
}

ChoiceText::ChoiceText(const ModelText& text, ChoiceTextOptions options,
                       const std::vector<TokenId>& prompt)
    : options_(std::move(options)),
      decoder_(text.NewDecoder(prompt, options_.skip_special)),
      stops_(options_.stop, options_.include_stop) {
  if (!options_.echo && options_.echo_text.empty()) return;
  echo_.emplace();
  echo_->text = options_.echo_text;
  // Nothing comes before the first token, so it has no logprob.
  if (options_.logprobs && options_.echo)
    echo_->logprobs.push_back({prompt.front(), {}, {}});
}

Delta ChoiceText::Begin() {
  Delta delta;
  if (echo_) delta = *std::exchange(echo_, std::nullopt);
  return delta;
}

void ChoiceText::TakePrompt(const TokenEvent& event, Delta& delta) const {
  if (options_.logprobs && options_.echo) {
    for (TokenResult token : event.prompt) {
      const auto tops = static_cast<size_t>(options_.num_echo_tops);
      if (token.top_logprobs.size() > tops) token.top_logprobs.resize(tops);
      delta.logprobs.push_back(std::move(token));
    }
  }
  if (options_.prompt_logprobs) delta.prompt_logprobs = event.prompt;
}

Delta ChoiceText::OnTokens(const TokenEvent& event) {
  if (ended_) return {};
  Delta delta = Begin();
  TakePrompt(event, delta);
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
    if (options_.include_stop) {
      delta.text += stops_.Push(decoder_->Push(*event.stop_token));
    }
  }
  delta.text += stops_.Push(decoder_->Finish());
  delta.text += stops_.Finish();
  if (stops_.matched()) delta.finish = FinishReason::kStop;
  return delta;
}

}  // namespace sluice::gateway
