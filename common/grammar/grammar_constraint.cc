#include "common/grammar/grammar_constraint.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "common/base/catch_exceptions.h"
#include "common/core/step_plan.h"

namespace sluice {
namespace {

// A step takes some 0.1 ms with a vocabulary of 128 k tokens. One that is cold
// may take 7 ms.
constexpr Duration kAllowed = std::chrono::milliseconds(1);
constexpr Duration kMaxOverdraft = std::chrono::milliseconds(20);

// Returns the CPU time of this thread.
Duration CpuTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) +
         std::chrono::nanoseconds(time.tv_nsec);
}

bool Contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void AddRun(TokenRun run, std::vector<TokenRun>& runs) {
  runs.push_back(run);
  std::sort(runs.begin(), runs.end(), [](const TokenRun& a, const TokenRun& b) {
    return a.begin < b.begin;
  });
  size_t kept = 0;
  for (const TokenRun& next : std::vector<TokenRun>(runs)) {
    if (kept > 0 && runs[kept - 1].end >= next.begin) {
      runs[kept - 1].end = std::max(runs[kept - 1].end, next.end);
    } else {
      runs[kept++] = next;
    }
  }
  runs.resize(kept);
}

// Lets one of `ids` come in place of what the grammar begins with.
void AllowAlso(const std::vector<TokenId>& ids, ConstraintStep& step) {
  if (ids.empty() || !step.mask) return;
  if (!step.forced.empty()) {
    step.mask->runs = {{step.forced.front(), step.forced.front() + 1}};
    step.forced.clear();
  }
  for (const TokenId id : ids) AddRun({id, id + 1}, step.mask->runs);
}

}  // namespace

GrammarConstraint::GrammarConstraint(GrammarUse use,
                                     std::shared_ptr<MatcherThreads> threads)
    : use_(std::move(use)),
      threads_(std::move(threads)),
      is_free_(use_.begins_free && !use_.free_end.empty()) {}

void GrammarConstraint::Advance(std::span<const TokenId> appended,
                                std::function<void()> ready) {
  auto lane = MatcherThreads::Lane::kNormal;
  {
    MutexLock lock(mutex_);
    appended_.insert(appended_.end(), appended.begin(), appended.end());
    waiting_.push_back(std::move(ready));
    is_ready_ = false;
    if (is_working_) return;
    is_working_ = true;
    if (overdraft_ > kMaxOverdraft) lane = MatcherThreads::Lane::kIdle;
  }
  threads_->Run([self = shared_from_this()] { self->Work(); }, lane);
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
    const Duration begin = CpuTime();
    const Status status =
        CatchExceptions("grammar", [&] { step_ = Compute(tokens); });
    if (!status.ok()) step_ = {.status = status};
    const Duration took = CpuTime() - begin;
    MutexLock lock(mutex_);
    overdraft_ = std::max(overdraft_ + took - kAllowed, Duration::zero());
    if (!appended_.empty()) continue;
    is_working_ = false;
    is_ready_ = true;
    ready.swap(waiting_);
    break;
  }
  for (const std::function<void()>& call : ready) call();
}

ConstraintStep GrammarConstraint::Compute(std::span<const TokenId> tokens) {
  if (!step_.status.ok()) return std::move(step_);
  if (!has_tokens_ && !tokens.empty()) {
    has_tokens_ = true;
    is_free_ = is_free_ || Contains(use_.free_begin, tokens.front());
  }
  if (is_free_) {
    const auto end =
        std::find_first_of(tokens.begin(), tokens.end(), use_.free_end.begin(),
                           use_.free_end.end());
    if (end == tokens.end()) {
      ConstraintStep free;
      free.mask = use_.grammar->vocabulary().all_but_eos();
      return free;
    }
    is_free_ = false;
    matcher_ = nullptr;  // of an answer without reasoning
    tokens = tokens.subspan(static_cast<size_t>(end - tokens.begin()) + 1);
  }
  ConstraintStep step = Match(tokens);
  if (!has_tokens_ && step.status.ok() && !step.is_complete) {
    AllowAlso(use_.free_begin, step);
  }
  return step;
}

ConstraintStep GrammarConstraint::Match(std::span<const TokenId> tokens) {
  if (matcher_ == nullptr) {
    auto made = Matcher::Make(use_.grammar);
    if (!made.ok()) {
      ConstraintStep failed;
      failed.status = made.status();
      return failed;
    }
    matcher_ = *std::move(made);
  }
  return matcher_->Step(tokens, use_.takes_forced ? kMaxDraftTokens : 0);
}

}  // namespace sluice
