#ifndef SLUICE_TESTS_SERVICES_STAGE_GENERATE_H_
#define SLUICE_TESTS_SERVICES_STAGE_GENERATE_H_

#include <memory>
#include <optional>
#include <vector>

#include "common/base/mutex.h"
#include "common/core/generate_request.h"
#include "common/engine/engine_loop.h"

namespace sluice::testing {

// Keeps what a sequence was given, and waits for its end.
class CollectingSink : public TokenSink {
 public:
  void OnTokens(TokenEvent event) override {
    MutexLock lock(mutex_);
    for (const TokenResult& token : event.tokens) {
      tokens_.push_back(token.token);
    }
    changed_.NotifyAll();
  }
  void OnEnd(FinalEvent event) override {
    MutexLock lock(mutex_);
    end_ = std::move(event);
    changed_.NotifyAll();
  }
  // Nothing if `deadline` passed first.
  std::optional<FinalEvent> WaitEnd(TimePoint deadline) {
    MutexLock lock(mutex_);
    while (!end_.has_value()) {
      if (!changed_.WaitUntil(mutex_, deadline)) break;
    }
    return end_;
  }
  bool WaitTokens(size_t count, TimePoint deadline) {
    MutexLock lock(mutex_);
    while (tokens_.size() < count && !end_.has_value()) {
      if (!changed_.WaitUntil(mutex_, deadline)) break;
    }
    return tokens_.size() >= count;
  }
  std::vector<TokenId> tokens() const {
    MutexLock lock(mutex_);
    return tokens_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<TokenId> tokens_ ABSL_GUARDED_BY(mutex_);
  std::optional<FinalEvent> end_ ABSL_GUARDED_BY(mutex_);
};

// `max_tokens` greedy tokens after `prompt`, no end token.
inline GenerateRequest GreedyRequest(std::vector<TokenId> prompt,
                                     int max_tokens) {
  GenerateRequest request;
  request.request_id = "test";
  request.prompt_tokens = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SERVICES_STAGE_GENERATE_H_
