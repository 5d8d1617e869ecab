#ifndef SLUICE_COMMON_GRAMMAR_GRAMMAR_CONSTRAINT_H_
#define SLUICE_COMMON_GRAMMAR_GRAMMAR_CONSTRAINT_H_

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/core/token_constraint.h"
#include "common/grammar/grammar_compiler.h"
#include "common/grammar/matcher.h"
#include "common/grammar/matcher_threads.h"

namespace sluice {

// A sequence that keeps to a grammar, from its start or behind its reasoning
// on. A grammar whose steps take long falls to the idle lane of the threads.
class GrammarConstraint
    : public TokenConstraint,
      public std::enable_shared_from_this<GrammarConstraint> {
 public:
  GrammarConstraint(GrammarUse use, std::shared_ptr<MatcherThreads> threads);

  void Advance(std::span<const TokenId> appended,
               std::function<void()> ready) override;
  const ConstraintStep* Latest() const override;

 private:
  void Work();
  // Returns the step behind `tokens`, the next of the sequence.
  ConstraintStep Compute(std::span<const TokenId> tokens);
  ConstraintStep Match(std::span<const TokenId> tokens);

  const GrammarUse use_;
  const std::shared_ptr<MatcherThreads> threads_;

  mutable Mutex mutex_;
  std::vector<TokenId> appended_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_working_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_ready_ ABSL_GUARDED_BY(mutex_) = false;
  // CPU time of the steps so far beyond what each of them may take.
  Duration overdraft_ ABSL_GUARDED_BY(mutex_) = Duration::zero();

  // Of the thread that works; the engine thread reads step_ once it is ready.
  std::unique_ptr<Matcher> matcher_;  // null until it is needed
  bool is_free_ = false;              // within reasoning
  bool has_tokens_ = false;           // of the answer
  ConstraintStep step_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_GRAMMAR_GRAMMAR_CONSTRAINT_H_
