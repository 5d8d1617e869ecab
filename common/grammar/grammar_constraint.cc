#include "common/grammar/grammar_constraint.h"

#include <algorithm>
#include <utility>

#include "common/core/step_plan.h"

namespace sluice {

GrammarConstraint::GrammarConstraint(GrammarUse use,
                                     std::shared_ptr<MatcherThreads> threads)
    : use_(std::move(use)), threads_(std::move(threads)) {}

void GrammarConstraint::Advance(std::span<const TokenId> appended,
                                std::function<void()> ready) {
  {
    MutexLock lock(mutex_);
    appended_.insert(appended_.end(), appended.begin(), appended.end());
    waiting_.push_back(std::move(ready));
    is_ready_ = false;
    if (is_working_) return;
    is_working_ = true;
  }
  threads_->Run([self = shared_from_this()] { self->Work(); });
}

const ConstraintStep* GrammarConstraint::Latest() const {
  MutexLock lock(mutex_);
  return is_ready_ ? &step_ : nullptr;
}

void GrammarConstraint::Work() {
  std::vector<std::function<void()>> ready;
  for (;;) {
    std::vector<TokenId> tokens;
    {
      MutexLock lock(mutex_);
      tokens.swap(appended_);
    }
    Compute(tokens);
    MutexLock lock(mutex_);
    if (!appended_.empty()) continue;
    is_working_ = false;
    is_ready_ = true;
    ready.swap(waiting_);
    break;
  }
  for (const std::function<void()>& call : ready) call();
}

void GrammarConstraint::Compute(std::span<const TokenId> tokens) {
  if (has_failed_) return;  // the step says why
  step_ = {};
  if (matcher_ == nullptr && !use_.free_until.empty()) {
    const auto begin =
        std::find_first_of(tokens.begin(), tokens.end(),
                           use_.free_until.begin(), use_.free_until.end());
    if (begin == tokens.end()) {
      if (!use_.is_optional) {
        step_.mask = use_.grammar->vocabulary().all_but_eos();
      }
      return;
    }
    tokens = tokens.subspan(static_cast<size_t>(begin - tokens.begin()) + 1);
  }
  MatchTokens(tokens);
  has_failed_ = !step_.status.ok();
}

void GrammarConstraint::MatchTokens(std::span<const TokenId> tokens) {
  if (matcher_ == nullptr) {
    auto made = Matcher::Make(use_.grammar);
    if (!made.ok()) {
      step_.status = made.status();
      return;
    }
    matcher_ = *std::move(made);
  }
  step_ = matcher_->Step(tokens, use_.takes_forced ? kMaxDraftTokens : 0);
  // Free again, and the grammar may begin anew.
  if (step_.is_complete && use_.is_optional) {
    matcher_ = nullptr;
    step_ = {};
  }
}

}  // namespace sluice
