#ifndef SLUICE_COMMON_SERVING_REQUEST_RUNNER_H_
#define SLUICE_COMMON_SERVING_REQUEST_RUNNER_H_

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/core/generate_request.h"
#include "common/engine/engine_loop.h"
#include "common/http/exchange.h"
#include "common/serving/answer_format.h"
#include "common/serving/choice_text.h"
#include "common/serving/context.h"
#include "common/serving/prepared_request.h"
#include "common/serving/request_answer.h"
#include "common/serving/request_metrics.h"

namespace sluice::serving {

// Runs one request: submits its sequences, turns their tokens into deltas for
// the answer, and cancels the sequences when the client leaves. A runner lives
// on its exchange's loop; the engine's thread only puts events into the
// runner's mailbox. A runner keeps itself alive until every sequence has ended.
class RequestRunner : public std::enable_shared_from_this<RequestRunner> {
 public:
  // On the exchange's loop.
  static void Start(const ServingContext& context, PreparedRequest prepared,
                    std::shared_ptr<http::Exchange> exchange);

  RequestRunner(const ServingContext& context, PreparedRequest prepared,
                std::shared_ptr<http::Exchange> exchange);

 private:
  class Sink;
  struct Mail {
    size_t choice = 0;
    TimePoint when;
    std::variant<TokenEvent, FinalEvent> event;
    size_t steps = 0;  // of the sequence before this event, if traced
    PromptResults prompt = nullptr;  // of the event's prompt tokens
  };
  struct Choice {
    ChoiceText text;
    size_t prompt = 0;  // index of its prompt
    std::optional<SequenceId> sequence;
    int max_tokens = 0;
    std::optional<TimePoint> last_token;
    bool answered = false;  // the finish is out
    bool ended = false;     // OnEnd came
    // Followers wait until the prompt's first choice has all logprobs of the
    // prompt and has collected them for the followers.
    bool awaits_prompt = false;
    bool collects_prompt = false;
    std::vector<Mail> held;
    std::vector<PromptResults> prompt_results;
  };
  // The shared state of a prompt's choices.
  struct Prompt {
    std::optional<int64_t> cached_tokens;  // the least of its choices so far
    int choices = 0;
    int ended = 0;  // without error
    int most_tokens = 0;
  };

  void Submit();
  void OnStart(size_t choice);  // any thread
  void OnSuspend();             // any thread
  void Deliver(Mail mail);      // any thread
  void Drain();
  void Receive(Mail mail);
  void Handle(const Mail& mail);
  void TellFollowers(const Mail& mail);
  void Take(const Mail& mail);
  void TraceDelivery(const Mail& mail, int64_t begin_ns);
  void OnTokens(Choice& choice, size_t index, const TokenEvent& event,
                const std::vector<PromptResults>& prompt, TimePoint when);
  void OnEnd(Choice& choice, size_t index, const FinalEvent& event,
             TimePoint when);
  // Returns the delta of `source`, with the tokens counted that the choice's
  // text took in it.
  template <typename Source>
  Delta Counted(Choice& choice, size_t index,
                std::optional<int64_t> cached_tokens, TimePoint when,
                const Source& source);
  void CountCached(size_t prompt, int64_t cached_tokens);
  void Emit(Choice& choice, size_t index, Delta delta);
  void FinishIfAnswered();
  void TellFigures();  // to the exchange, for the access log
  void CancelAll();
  Rejection RejectionOf(const Status& status) const;
  void Observe(const Choice& choice, const FinalEvent& event, TimePoint when);

  const ServingContext context_;
  PreparedRequest prepared_;
  const std::shared_ptr<http::Exchange> exchange_;
  const TimePoint arrival_;
  std::vector<Choice> choices_;
  Usage usage_;
  std::vector<Prompt> prompts_;
  RequestAnswer answer_;
  int64_t decoded_ns_ = 0;  // when the latest tokens became text, if traced

  Mutex mutex_;
  std::vector<Mail> mailbox_ ABSL_GUARDED_BY(mutex_);
  bool is_posted_ ABSL_GUARDED_BY(mutex_) = false;     // Drain is posted
  bool is_suspended_ ABSL_GUARDED_BY(mutex_) = false;  // news of it is posted
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_RUNNER_H_
