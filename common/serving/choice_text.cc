#include "common/serving/choice_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/cat.h"

namespace sluice::serving {
namespace {

// No token: for text that the decoder returns at its end.
constexpr TokenId kNoToken = -1;

}  // namespace

void Delta::AddRun(DeltaRun run) {
  const bool goes_on = !runs.empty() && runs.back().kind == run.kind &&
                       runs.back().call == run.call;
  if (goes_on) {
    runs.back().bytes += run.bytes;
    runs.back().tokens += run.tokens;
  } else {
    runs.push_back(run);
  }
}

void Delta::AddText(std::string_view piece) {
  if (piece.empty()) return;
  text += piece;
  AddRun({DeltaRun::Kind::kText, piece.size()});
}

void Delta::AddReasoning(std::string_view piece) {
  if (piece.empty()) return;
  reasoning += piece;
  AddRun({DeltaRun::Kind::kReasoning, piece.size()});
}

void Delta::AddCall(CallDelta call) {
  AddRun({DeltaRun::Kind::kCall, call.arguments.size(), call.index});
  JoinCall(std::move(call));
}

void Delta::JoinCall(CallDelta call) {
  const bool goes_on =
      !calls.empty() && calls.back().index == call.index && call.name.empty();
  if (goes_on) {
    calls.back().arguments += call.arguments;
  } else {
    calls.push_back(std::move(call));
  }
}

void Delta::Append(Delta other) {
  text += other.text;
  reasoning += other.reasoning;
  for (CallDelta& call : other.calls) JoinCall(std::move(call));
  for (const DeltaRun& run : other.runs) AddRun(run);
  token_ids.insert(token_ids.end(), other.token_ids.begin(),
                   other.token_ids.end());
  logprobs.insert(logprobs.end(),
                  std::make_move_iterator(other.logprobs.begin()),
                  std::make_move_iterator(other.logprobs.end()));
  AddPrompt(other.prompt);
  cut_tokens.insert(cut_tokens.end(), other.cut_tokens.begin(),
                    other.cut_tokens.end());
  if (other.echo_begin) echo_begin = other.echo_begin;
  echoes_prompt = echoes_prompt || other.echoes_prompt;
  num_echo_tops = std::max(num_echo_tops, other.num_echo_tops);
  if (other.finish) finish = other.finish;
  if (other.stop_reason) stop_reason = std::move(other.stop_reason);
  called = called || other.called;
}

void Delta::AddPrompt(const std::vector<PromptResults>& parts) {
  for (const PromptResults& part : parts) {
    prompt_ends.push_back(num_prompt() + part->size());
    prompt.push_back(part);
  }
}

size_t Delta::num_prompt() const {
  return prompt_ends.empty() ? 0 : prompt_ends.back();
}

const TokenResult& Delta::prompt_at(size_t index) const {
  const auto end =
      std::upper_bound(prompt_ends.begin(), prompt_ends.end(), index);
  const std::vector<TokenResult>& part =
      *prompt[static_cast<size_t>(end - prompt_ends.begin())];
  return part[index - (*end - part.size())];
}

size_t Delta::num_shown() const {
  return (echo_begin ? 1 : 0) + (echoes_prompt ? num_prompt() : 0) +
         logprobs.size();
}

// Each entry of `logprobs` is about the token at its place in `token_ids`; the
// end token may have none.
size_t Delta::num_entries() const {
  return num_shown() - logprobs.size() + token_ids.size();
}

ShownLogprob Delta::shown(size_t index) const {
  const auto show = [](const TokenResult& token, size_t tops) {
    return ShownLogprob{token.token, token.logprob ? &*token.logprob : nullptr,
                        std::span(token.top_logprobs)
                            .first(std::min(tops, token.top_logprobs.size()))};
  };
  if (echo_begin && index-- == 0) return {*echo_begin, nullptr, {}};
  if (echoes_prompt) {
    const size_t echoed = num_prompt();
    if (index < echoed) return show(prompt_at(index), num_echo_tops);
    index -= echoed;
  }
  const TokenResult& token = logprobs[index];
  return show(token, token.top_logprobs.size());
}

size_t Delta::EstimatedBytes() const {
  constexpr size_t kLogprob = 64;  // per token
  size_t bytes = 512 + text.size() + reasoning.size() + 8 * token_ids.size();
  for (const CallDelta& call : calls) bytes += 128 + call.arguments.size();
  const auto count = [&](const std::vector<TokenResult>& tokens) {
    for (const TokenResult& token : tokens) {
      bytes += kLogprob * (1 + token.top_logprobs.size());
    }
  };
  count(logprobs);
  for (const PromptResults& part : prompt) count(*part);
  return bytes;
}

ChoiceText::ChoiceText(const ModelText& text, ChoiceTextOptions options,
                       const std::vector<TokenId>& prompt)
    : options_(std::move(options)),
      decoder_(text.NewDecoder(prompt,
                               {options_.skip_special,
                                /*show_markup=*/options_.parser != nullptr})),
      stops_(options_.stop, options_.include_stop) {
  if (!options_.echo && options_.echo_text.empty()) return;
  echo_.emplace();
  echo_->AddText(options_.echo_text);
  // The first token has no logprob: no token comes before it.
  if (options_.logprobs && options_.echo) echo_->echo_begin = prompt.front();
}

Delta ChoiceText::Begin() {
  Delta delta;
  if (echo_) delta = *std::exchange(echo_, std::nullopt);
  return delta;
}

void ChoiceText::TakePrompt(const std::vector<PromptResults>& prompt,
                            Delta& delta) const {
  const bool echoes = options_.logprobs && options_.echo;
  if (prompt.empty() || !(echoes || options_.prompt_logprobs)) return;
  delta.AddPrompt(prompt);
  delta.echoes_prompt = echoes;
  delta.num_echo_tops = static_cast<size_t>(options_.num_echo_tops);
}

void ChoiceText::End(FinishReason reason, Delta& delta) {
  ended_ = true;
  delta.finish = reason;
  delta.called = called_ && !in_call_;
}

void ChoiceText::TakeContent(const std::string& text, Delta& delta) {
  if (completion_tokens_ <= options_.min_tokens) {
    delta.AddText(text);
    return;
  }
  delta.AddText(stops_.Push(text));
  if (!stops_.matched()) return;
  delta.stop_reason = stops_.match();
  End(FinishReason::kStop, delta);
}

void ChoiceText::TakeEvents(OutputEvents events, Delta& delta) {
  bool reasons = false;
  for (OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        TakeContent(event.text, delta);
        break;
      case OutputEvent::Kind::kReasoning:
        delta.AddText(stops_.Finish());
        if (!options_.hides_reasoning) delta.AddReasoning(event.text);
        reasons = true;
        break;
      case OutputEvent::Kind::kCallBegin:
        // No stop string reaches over a call.
        delta.AddText(stops_.Finish());
        called_ = in_call_ = true;
        delta.AddCall({event.call, Cat(options_.call_ids, event.call),
                       std::move(event.text), ""});
        break;
      case OutputEvent::Kind::kArguments:
        delta.AddCall({event.call, "", "", std::move(event.text)});
        break;
      case OutputEvent::Kind::kCallEnd:
        in_call_ = false;
        if (options_.parallel_calls) break;
        delta.AddText(stops_.Finish());
        End(FinishReason::kStop, delta);
        break;
    }
    if (ended_) break;
  }
  if (reasons) reasoning_tokens_ += untold_tokens_;
  if (!events.empty()) untold_tokens_ = 0;
}

void ChoiceText::Take(TokenId token, const std::string& text, Delta& delta) {
  if (options_.parser == nullptr) {
    TakeContent(text, delta);
    return;
  }
  if (token != kNoToken) ++untold_tokens_;
  TakeEvents(options_.parser->Feed(token, text), delta);
}

void ChoiceText::TakeToken(TokenId token, Delta& delta) {
  const size_t runs = delta.runs.size();
  const size_t bytes = runs > 0 ? delta.runs.back().bytes : 0;
  Take(token, decoder_.Push(token), delta);
  ++tokens_of_no_run_;
  const bool shows =
      delta.runs.size() > runs || (runs > 0 && delta.runs.back().bytes > bytes);
  if (shows) delta.runs.back().tokens += std::exchange(tokens_of_no_run_, 0);
}

Delta ChoiceText::OnTokens(const TokenEvent& event,
                           const std::vector<PromptResults>& prompt) {
  if (ended_) return {};
  Delta delta = Begin();
  TakePrompt(prompt, delta);
  for (const TokenResult& token : event.tokens) {
    delta.token_ids.push_back(token.token);
    if (options_.logprobs) delta.logprobs.push_back(token);
    ++completion_tokens_;
    TakeToken(token.token, delta);
    if (ended_) break;
  }
  return delta;
}

Delta ChoiceText::OnEnd(const FinalEvent& event) {
  if (ended_) return {};
  Delta delta = Begin();
  if (event.stop_token) {
    ++completion_tokens_;
    delta.token_ids.push_back(*event.stop_token);
    // Evaluations expect one entry per token, with the end token.
    if (options_.logprobs && event.stop_result.logprob) {
      delta.logprobs.push_back(event.stop_result);
    }
    if (options_.include_stop) {
      Take(*event.stop_token, decoder_.Push(*event.stop_token), delta);
    }
  }
  if (!ended_) TakeRest(event, delta);
  if (!ended_) {
    const auto& asked = options_.stop_token_ids;
    if (event.stop_token && std::find(asked.begin(), asked.end(),
                                      *event.stop_token) != asked.end()) {
      delta.stop_reason = *event.stop_token;
    }
    End(event.reason, delta);
  }
  return delta;
}

void ChoiceText::TakeRest(const FinalEvent& event, Delta& delta) {
  const std::string text = decoder_.Finish();
  if (options_.parser == nullptr) {
    TakeContent(text, delta);
  } else {
    if (!text.empty()) Take(kNoToken, text, delta);
    if (ended_) return;
    const auto& own = options_.eos_ids;
    const bool by_model =
        !event.stop_token ||
        std::find(own.begin(), own.end(), *event.stop_token) != own.end();
    const bool stopped = event.reason == FinishReason::kStop && by_model;
    TakeEvents(options_.parser->Finish(stopped ? OutputEnd::kStopped
                                               : OutputEnd::kCutShort),
               delta);
  }
  if (!ended_) delta.AddText(stops_.Finish());
}

}  // namespace sluice::serving
