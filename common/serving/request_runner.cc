#include "common/serving/request_runner.h"

#include <algorithm>
#include <utility>

#include "common/base/exception_counts.h"
#include "common/serving/answer_timings.h"
#include "common/serving/served_model.h"
#include "common/serving/stream_journal.h"

namespace sluice::serving {
// Puts a sequence's events into the runner's mailbox.
class RequestRunner::Sink : public TokenSink {
 public:
  Sink(std::shared_ptr<RequestRunner> runner, size_t choice)
      : runner_(std::move(runner)), choice_(choice) {}

  void OnStart() override { runner_->OnStart(choice_); }
  void OnSuspend() override { runner_->OnSuspend(); }
  void OnTokens(TokenEvent event) override {
    runner_->Deliver({choice_, Clock::now(), std::move(event), steps_});
  }
  void OnEnd(FinalEvent event) override {
    runner_->Deliver({choice_, Clock::now(), std::move(event), steps_});
  }
  void OnInbox(const TraceSpan& inbox) override {
    runner_->prepared_.trace->OnInbox(choice_, inbox);
  }
  void OnStep(std::shared_ptr<const StepTrace> step,
              const TracedChunk& chunk) override {
    ++steps_;
    runner_->prepared_.trace->OnStep(choice_, std::move(step), chunk);
  }

 private:
  const std::shared_ptr<RequestRunner> runner_;
  const size_t choice_;
  size_t steps_ = 0;  // of the engine's thread
};

void RequestRunner::Start(const ServingContext& context,
                          PreparedRequest prepared,
                          std::shared_ptr<http::Exchange> exchange) {
  auto runner = std::make_shared<RequestRunner>(context, std::move(prepared),
                                                std::move(exchange));
  runner->Submit();
}

RequestRunner::RequestRunner(const ServingContext& context,
                             PreparedRequest prepared,
                             std::shared_ptr<http::Exchange> exchange)
    : context_(context),
      prepared_(std::move(prepared)),
      exchange_(std::move(exchange)),
      arrival_(exchange_->request().arrival),
      answer_(context_, prepared_, exchange_) {
  size_t leader = 0;  // of followers
  for (PreparedRequest::Choice& choice : prepared_.choices) {
    if (choice.text.parser != nullptr) usage_.reasoning_tokens = 0;
    const auto& prompt = choice.generate.prompt_tokens;
    if (choice.prompt == prompts_.size()) {  // choices share their prompt
      usage_.prompt_tokens += static_cast<int64_t>(prompt.size());
      prompts_.emplace_back();
    }
    ++prompts_.back().choices;
    choices_.push_back(
        {ChoiceText(*context_.model.text, std::move(choice.text), prompt),
         choice.prompt, std::nullopt, choice.generate.max_tokens,
         std::nullopt});
    choices_.back().awaits_prompt = choice.follows;
    if (choice.follows) choices_[leader].collects_prompt = true;
    if (!choice.follows) leader = choices_.size() - 1;
  }
}

void RequestRunner::Submit() {
  exchange_->OnGone([self = shared_from_this()](http::Gone) {
    self->answer_.Abandon();
    self->CancelAll();
  });
  TellFigures();
  answer_.Begin(
      weak_from_this(), [this] { CancelAll(); }, usage_);
  if (prepared_.trace != nullptr) prepared_.trace->OnStart(choices_.size());
  for (size_t i = 0; i < choices_.size() && !answer_.is_done(); ++i) {
    if (prepared_.trace != nullptr) {
      prepared_.choices[i].generate.trace = true;
      prepared_.trace->OnSubmit(i);
    }
    auto sink = std::make_shared<Sink>(shared_from_this(), i);
    const auto sequence = context_.engine.Submit(
        std::move(prepared_.choices[i].generate), std::move(sink));
    if (sequence.ok()) {
      choices_[i].sequence = *sequence;
      continue;
    }
    context_.metrics.OnRejection(RejectionOf(sequence.status()));
    answer_.Fail(sequence.status());
  }
  prepared_.choices.clear();  // the engine has the prompts
  if (answer_.is_done()) return;
  if (prepared_.resumed) context_.metrics.OnResume();
  if (prepared_.kept != nullptr) context_.streams->Add(prepared_.kept);
  prepared_.kept = nullptr;
}

void RequestRunner::OnStart(size_t choice) {
  if (prepared_.timings != nullptr) {
    prepared_.timings->OnStart(choice, Clock::now());
  }
  if (!answer_.is_stream()) return;
  exchange_->Post([self = shared_from_this()] { self->answer_.Open(); });
}

// One comment for all choices that are suspended together.
void RequestRunner::OnSuspend() {
  {
    MutexLock lock(mutex_);
    if (!answer_.is_stream() || std::exchange(is_suspended_, true)) return;
  }
  exchange_->Post([self = shared_from_this()] {
    {
      MutexLock lock(self->mutex_);
      self->is_suspended_ = false;
    }
    self->answer_.TellRecovery();
  });
}

Rejection RequestRunner::RejectionOf(const Status& status) const {
  if (status.code() == StatusCode::kResourceExhausted) {
    return Rejection::kQueueFull;
  }
  if (status.code() != StatusCode::kUnavailable) return Rejection::kInvalid;
  return context_.readiness().draining ? Rejection::kDraining
                                       : Rejection::kUnavailable;
}

// If posting fails, the engine gets the exception and ends the sequence.
void RequestRunner::Deliver(Mail mail) {
  {
    MutexLock lock(mutex_);
    mailbox_.push_back(std::move(mail));
    if (is_posted_) return;
    is_posted_ = true;
  }
  try {
    exchange_->Post([self = shared_from_this()] { self->Drain(); });
  } catch (...) {
    MutexLock lock(mutex_);
    is_posted_ = false;
    throw;
  }
}

void RequestRunner::Drain() {
  std::vector<Mail> mails;
  {
    MutexLock lock(mutex_);
    mails.swap(mailbox_);
    is_posted_ = false;
  }
  for (Mail& mail : mails) {
    const Status received =
        CatchAndCount("answer", [&] { Receive(std::move(mail)); });
    if (!received.ok()) answer_.FailThrown(received);
  }
}

void RequestRunner::Receive(Mail mail) {
  Choice& choice = choices_[mail.choice];
  auto* const event = std::get_if<TokenEvent>(&mail.event);
  if (event != nullptr && !event->prompt.empty()) {
    mail.prompt = std::make_shared<const std::vector<TokenResult>>(
        std::move(event->prompt));
    answer_.CountPrompt(*mail.prompt);
  }
  if (choice.awaits_prompt) {
    choice.held.push_back(std::move(mail));
    return;
  }
  Handle(mail);
  if (choice.collects_prompt) TellFollowers(mail);
}

void RequestRunner::Handle(const Mail& mail) {
  if (prepared_.trace == nullptr) {
    Take(mail);
    return;
  }
  decoded_ns_ = 0;
  const int64_t begin_ns = MonotonicNanos();
  Take(mail);
  TraceDelivery(mail, begin_ns);
}

void RequestRunner::TellFollowers(const Mail& mail) {
  Choice& first = choices_[mail.choice];
  if (const auto* event = std::get_if<TokenEvent>(&mail.event)) {
    if (mail.prompt != nullptr) first.prompt_results.push_back(mail.prompt);
    if (event->tokens.empty()) return;  // more of the prompt may come
  }
  first.collects_prompt = false;
  const auto told = std::exchange(first.prompt_results, {});
  for (size_t i = mail.choice + 1; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    if (choice.prompt != first.prompt) break;
    choice.awaits_prompt = false;
    OnTokens(choice, i, TokenEvent(), told, mail.when);
    for (const Mail& held : std::exchange(choice.held, {})) Handle(held);
  }
}

void RequestRunner::Take(const Mail& mail) {
  Choice& choice = choices_[mail.choice];
  if (const auto* tokens = std::get_if<TokenEvent>(&mail.event)) {
    std::vector<PromptResults> prompt;
    if (mail.prompt != nullptr) prompt.push_back(mail.prompt);
    OnTokens(choice, mail.choice, *tokens, prompt, mail.when);
  } else {
    OnEnd(choice, mail.choice, std::get<FinalEvent>(mail.event), mail.when);
  }
}

void RequestRunner::TraceDelivery(const Mail& mail, int64_t begin_ns) {
  trace::TraceRecord::Delivery delivery;
  delivery.steps = mail.steps;
  if (const auto* tokens = std::get_if<TokenEvent>(&mail.event)) {
    delivery.num_tokens = static_cast<int32_t>(tokens->tokens.size());
  } else {
    const auto& end = std::get<FinalEvent>(mail.event);
    delivery.is_end = true;
    delivery.has_end_token = end.stop_token.has_value();
    delivery.cached_tokens = end.stats.cached_tokens;
  }
  delivery.posted_ns = ToNanos(mail.when);
  delivery.begin_ns = begin_ns;
  delivery.sent_ns = MonotonicNanos();
  // Nothing was detokenized: the event is the answer's end.
  delivery.decoded_ns = decoded_ns_ != 0 ? decoded_ns_ : begin_ns;
  prepared_.trace->OnDelivery(mail.choice, delivery);
}

template <typename Source>
Delta RequestRunner::Counted(Choice& choice, size_t index,
                             std::optional<int64_t> cached_tokens,
                             TimePoint when, const Source& source) {
  const int64_t tokens = choice.text.completion_tokens();
  const int64_t reasoning = choice.text.reasoning_tokens();
  const TimePoint begin = Clock::now();
  Delta delta = source();
  context_.metrics.OnDetokenized(Seconds(Clock::now() - begin));
  const int64_t taken = choice.text.completion_tokens() - tokens;
  usage_.completion_tokens += taken;
  if (prepared_.timings != nullptr) {
    prepared_.timings->OnTokens(index, taken, cached_tokens, when);
  }
  if (usage_.reasoning_tokens) {
    *usage_.reasoning_tokens += choice.text.reasoning_tokens() - reasoning;
  }
  TellFigures();
  return delta;
}

void RequestRunner::OnTokens(Choice& choice, size_t index,
                             const TokenEvent& event,
                             const std::vector<PromptResults>& prompt,
                             TimePoint when) {
  if (event.cached_tokens) CountCached(choice.prompt, *event.cached_tokens);
  if (!event.tokens.empty()) {
    const int count = static_cast<int>(event.tokens.size());
    if (choice.last_token) {
      context_.metrics.OnNextTokens(Seconds(when - *choice.last_token), count);
    } else {
      context_.metrics.OnFirstToken(Seconds(when - arrival_));
      auto& first = exchange_->figures().first_token;
      if (!first) first = when - arrival_;
    }
    choice.last_token = when;
  }
  if (answer_.is_done() || choice.answered) return;
  Delta delta = Counted(choice, index, event.cached_tokens, when,
                        [&] { return choice.text.OnTokens(event, prompt); });
  const bool matched = delta.finish.has_value();
  Emit(choice, index, std::move(delta));
  if (!matched) return;
  if (!choice.ended) context_.engine.Cancel(*choice.sequence);
  FinishIfAnswered();
}

void RequestRunner::OnEnd(Choice& choice, size_t index, const FinalEvent& event,
                          TimePoint when) {
  // A second OnEnd follows one that threw.
  if (std::exchange(choice.ended, true)) return;
  CountCached(choice.prompt, event.stats.cached_tokens);
  Observe(choice, event, when);
  if (answer_.is_done()) return;
  if (choice.answered) {
    if (prepared_.timings != nullptr) {
      prepared_.timings->OnTokens(index, 0, event.stats.cached_tokens, when);
    }
    FinishIfAnswered();
    return;
  }
  if (event.reason == FinishReason::kError) {
    answer_.Fail(event.status.ok() ? Internal("sequence failed")
                                   : event.status);
    return;
  }
  if (event.reason == FinishReason::kCancelled) {
    answer_.Fail(Unavailable("the request was cancelled by the server"));
    return;
  }
  Delta delta = Counted(choice, index, event.stats.cached_tokens, when,
                        [&] { return choice.text.OnEnd(event); });
  Emit(choice, index, std::move(delta));
  FinishIfAnswered();
}

void RequestRunner::CountCached(size_t prompt, int64_t cached_tokens) {
  // A choice that waited for another found its prompt computed: the request's
  // cached tokens are the least of its choices'.
  std::optional<int64_t>& least = prompts_.at(prompt).cached_tokens;
  if (least && *least <= cached_tokens) return;
  usage_.cached_tokens += cached_tokens - least.value_or(0);
  least = cached_tokens;
  TellFigures();
}

void RequestRunner::TellFigures() {
  http::AnswerFigures& figures = exchange_->figures();
  figures.generates = true;
  figures.prompt_tokens = usage_.prompt_tokens;
  figures.cached_tokens = usage_.cached_tokens;
  figures.completion_tokens = usage_.completion_tokens;
}

void RequestRunner::Emit(Choice& choice, size_t index, Delta delta) {
  if (prepared_.trace != nullptr) decoded_ns_ = MonotonicNanos();
  if (delta.finish) choice.answered = true;
  answer_.Add(index, std::move(delta), usage_);
}

void RequestRunner::FinishIfAnswered() {
  // Usage needs the cached tokens of OnEnd, also after a stop string.
  for (const Choice& choice : choices_) {
    if (!choice.answered || !choice.ended) return;
  }
  answer_.Finish(usage_);
}

void RequestRunner::CancelAll() {
  for (const Choice& choice : choices_) {
    if (choice.sequence && !choice.ended) {
      context_.engine.Cancel(*choice.sequence);
    }
  }
}

void RequestRunner::Observe(const Choice& choice, const FinalEvent& event,
                            TimePoint when) {
  Outcome outcome = Outcome::kAbort;
  if (event.reason == FinishReason::kError) outcome = Outcome::kError;
  if (event.reason == FinishReason::kLength) outcome = Outcome::kLength;
  // A matched stop string cancels the sequence; to the client it is a stop.
  if (event.reason == FinishReason::kStop ||
      (event.reason == FinishReason::kCancelled && choice.answered)) {
    outcome = Outcome::kStop;
  }
  context_.metrics.OnSequenceEnd(outcome, event.stats, choice.max_tokens,
                                 Seconds(when - arrival_));
  Prompt& prompt = prompts_.at(choice.prompt);
  if (outcome == Outcome::kError) return;
  prompt.most_tokens =
      std::max(prompt.most_tokens, event.stats.completion_tokens);
  if (++prompt.ended == prompt.choices) {
    context_.metrics.OnPromptEnd(prompt.choices, prompt.most_tokens);
  }
}

}  // namespace sluice::serving
