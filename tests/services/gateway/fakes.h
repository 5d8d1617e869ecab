#ifndef SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "common/engine/engine_loop.h"
#include "common/serving/served_model.h"
#include "tests/http/fake_exchange.h"
#include "tests/serving/fake_text.h"

namespace sluice::gateway {

// A served model "fake" with FakeText and a context of `positions`.
serving::ServedModel FakeModel(int positions = 4096);

// The engine's loop, whose thread a test plays: requests, cancels and refusals
// take the loop's own way, and the test says what the sequences give. Methods
// of any thread; they play what waits first. Cancels end a sequence.
class ScriptedEngine : private StepExecutor {
 public:
  // Plays a whole sequence when it is submitted: tells the sink of its tokens,
  // and returns its end.
  using Player = std::function<FinalEvent(const GenerateRequest&, TokenSink&)>;

  // Without a player the test calls Tokens and End.
  explicit ScriptedEngine(Player player = nullptr);
  ~ScriptedEngine() override;

  EngineLoop& loop() { return loop_; }
  void set_refusal(const Status& why) { loop_.OnPipelineLeaving(why); }
  void set_max_context(int tokens);
  // Takes what waits in the loop's inbox. False: nothing did.
  bool Play();
  // From here on a thread does so.
  void PlayOnThread();
  // Answers an exchange that defers what is posted.
  void Settle(http::FakeExchange& exchange);

  // Sequences are numbered from 0 in order of Submit.
  void Start(size_t sequence);
  void Tokens(size_t sequence, TokenEvent event);
  void Text(size_t sequence, std::string_view text);
  void End(size_t sequence, FinalEvent event);
  void End(size_t sequence, FinishReason reason);
  // Ends all that have not ended, as a stop does.
  void EndAll();

  // Drops the records of all sequences, which have ended.
  void Forget();

  size_t submitted();
  // Waits until `count` sequences were submitted, or cancelled; false after
  // ten seconds.
  bool AwaitSubmitted(size_t count);
  bool AwaitCancelled(size_t count);
  GenerateRequest request(size_t sequence);

 private:
  struct Played {
    SequenceId id;
    std::string request_id;
    GenerateRequest request;
    std::shared_ptr<TokenSink> sink;  // null: it has ended
  };

  void Submit(StepPlan) override {}  // there is no pipeline
  void Take(Submission submission);
  void Cancel(SequenceId id);
  void EndNow(size_t sequence, FinalEvent event);
  std::shared_ptr<TokenSink> SinkOf(size_t sequence);
  size_t cancelled();
  static bool Await(const std::function<bool()>& condition);

  const Player player_;
  EngineLoop loop_;
  Epoch epoch_;
  Mutex playing_;  // one thread takes from the inbox at a time
  Mutex mutex_;
  std::vector<Played> sequences_ ABSL_GUARDED_BY(mutex_);
  std::set<size_t> cancelled_ ABSL_GUARDED_BY(mutex_);
  NamedThread thread_;
};

// Gives a prompt's bytes back, then its end token.
FinalEvent Echo(const GenerateRequest& request, TokenSink& sink);

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_
