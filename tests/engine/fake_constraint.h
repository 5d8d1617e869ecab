#ifndef SLUICE_TESTS_ENGINE_FAKE_CONSTRAINT_H_
#define SLUICE_TESTS_ENGINE_FAKE_CONSTRAINT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "common/core/token_constraint.h"

namespace sluice {

// A grammar of positions: each position of the answer is one token that must
// come, or any of about two thirds of the vocabulary.
struct FakeGrammar {
  uint64_t seed = 1;
  int32_t vocab_size = 50;
  int32_t forced_runs = 3;   // of ten stretches of 7 positions, those forced
  int32_t complete_at = -1;  // position; below 0: never
  int32_t fails_at = -1;
  bool takes_forced = true;

  // Returns the step behind `position` tokens of the answer.
  ConstraintStep At(int32_t position) const;
};

// Steps that are held back until they are released.
class HeldSteps {
 public:
  void Hold(std::function<void()> step) { steps_.push_back(std::move(step)); }
  // Releases the oldest; false if none is held.
  bool Release() {
    if (steps_.empty()) return false;
    std::function<void()> step = std::move(steps_.front());
    steps_.pop_front();
    step();
    return true;
  }
  size_t size() const { return steps_.size(); }

 private:
  std::deque<std::function<void()>> steps_;
};

// Holds a sequence to a FakeGrammar. `held` null: steps are there at once.
class FakeConstraint : public TokenConstraint,
                       public std::enable_shared_from_this<FakeConstraint> {
 public:
  FakeConstraint(const FakeGrammar& grammar,
                 const std::shared_ptr<HeldSteps>& held)
      : grammar_(grammar), is_held_(held != nullptr), held_(held) {}

  const FakeGrammar& grammar() const { return grammar_; }
  int32_t num_tokens() const { return num_tokens_; }

  void Advance(std::span<const TokenId> appended,
               std::function<void()> ready) override;
  const ConstraintStep* Latest() const override {
    return is_ready_ ? &step_ : nullptr;
  }

 private:
  const FakeGrammar grammar_;
  const bool is_held_;
  const std::weak_ptr<HeldSteps> held_;  // whose steps own this
  int32_t num_tokens_ = 0;
  bool is_ready_ = false;
  ConstraintStep step_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_ENGINE_FAKE_CONSTRAINT_H_
