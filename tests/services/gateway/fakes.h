#ifndef SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "services/gateway/generator.h"
#include "services/gateway/served_model.h"
#include "tests/http/fake_exchange.h"
#include "tests/openai/fake_text.h"

namespace sluice::gateway {

// A served model "fake" with FakeText and a context of `positions`.
ServedModel FakeModel(int positions = 4096);

// A generator that a test scripts, from any thread. Cancels end a sequence at
// once.
class FakeGenerator : public Generator {
 public:
  // What every sequence does by itself when it is submitted.
  enum class Mode {
    kScripted,  // nothing: the test calls Tokens and End
    kEcho,      // gives its prompt's bytes back, then its end token
  };
  explicit FakeGenerator(Mode mode = Mode::kScripted) : mode_(mode) {}
  ~FakeGenerator() override;

  StatusOr<SequenceId> Submit(GenerateRequest request,
                              std::shared_ptr<TokenSink> sink) override;
  void Cancel(SequenceId sequence) override;
  int max_context() const override { return max_context_; }

  void set_refusal(Status status) { refusal_ = std::move(status); }
  void set_max_context(int tokens) { max_context_ = tokens; }

  // Sequences are numbered from 0 in order of Submit.
  void Start(size_t sequence);
  void Tokens(size_t sequence, TokenEvent event);
  void Text(size_t sequence, std::string_view text);
  void End(size_t sequence, FinalEvent event);
  void End(size_t sequence, FinishReason reason);

  // Drops the records of ended sequences, all of them.
  void Forget();

  size_t submitted() const;
  // Waits until `count` sequences were submitted, or cancelled; false after
  // ten seconds.
  bool AwaitSubmitted(size_t count) const;
  bool AwaitCancelled(size_t count) const;
  GenerateRequest request(size_t sequence) const;

 private:
  std::shared_ptr<TokenSink> SinkOf(size_t sequence) const;

  const Mode mode_;
  Status refusal_;
  int max_context_ = 4096;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<GenerateRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<TokenSink>> sinks_ ABSL_GUARDED_BY(mutex_);
  std::set<size_t> cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_FAKES_H_
