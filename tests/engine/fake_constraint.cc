#include "tests/engine/fake_constraint.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/core/step_plan.h"

namespace sluice {
namespace {

uint64_t Mixed(uint64_t seed, int32_t position) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(position);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

ConstraintStep FakeGrammar::At(int32_t position) const {
  ConstraintStep step;
  if (fails_at >= 0 && position >= fails_at) {
    step.status = ResourceExhausted("the grammar fails");
    return step;
  }
  const auto is_forced = [&](int32_t at) {
    return static_cast<int32_t>(Mixed(seed, at / 7) % 10) < forced_runs &&
           at != complete_at;
  };
  const auto token_at = [&](int32_t at) {
    return static_cast<TokenId>(Mixed(seed + 1, at) %
                                static_cast<uint64_t>(vocab_size));
  };
  step.is_complete = position == complete_at;
  if (step.is_complete) return step;
  int32_t at = position;
  while (takes_forced && is_forced(at) && at + 1 != complete_at &&
         at + 1 != fails_at && std::ssize(step.forced) < kMaxDraftTokens) {
    step.forced.push_back(token_at(at++));
  }
  TokenMask& mask = step.mask.emplace();
  if (is_forced(at)) {
    mask.runs = {{token_at(at), token_at(at) + 1}};
    return step;
  }
  mask.excludes = at % 2 == 0;
  for (TokenId id = 0; id < vocab_size; ++id) {
    const bool is_allowed = (id + at + static_cast<TokenId>(seed % 3)) % 3 != 0;
    if (is_allowed == mask.excludes) continue;
    if (!mask.runs.empty() && mask.runs.back().end == id) {
      ++mask.runs.back().end;
    } else {
      mask.runs.push_back({id, id + 1});
    }
  }
  return step;
}

void FakeConstraint::Advance(std::span<const TokenId> appended,
                             std::function<void()> ready) {
  for (const TokenId token : appended) {
    // Every token was drawn under the mask of its position.
    const ConstraintStep step = FakeGrammar(grammar_).At(num_tokens_);
    EXPECT_TRUE(step.status.ok() && !step.is_complete)
        << num_tokens_ << " of " << appended.size() << ", complete at "
        << grammar_.complete_at << ", fails at " << grammar_.fails_at;
    if (!step.forced.empty()) {
      EXPECT_EQ(step.forced.front(), token);
    } else if (step.mask) {
      bool in_runs = false;
      for (const TokenRun& run : step.mask->runs) {
        in_runs = in_runs || (run.begin <= token && token < run.end);
      }
      EXPECT_NE(in_runs, step.mask->excludes) << token;
    }
    ++num_tokens_;
  }
  is_ready_ = false;
  auto compute = [self = shared_from_this(), count = num_tokens_,
                  ready = std::move(ready)] {
    if (count != self->num_tokens_) return;
    self->step_ = self->grammar_.At(count);
    self->is_ready_ = true;
    ready();
  };
  if (!is_held_) return compute();
  if (const auto held = held_.lock()) held->Hold(std::move(compute));
}

}  // namespace sluice
