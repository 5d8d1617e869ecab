#include "common/engine/constraint_steps.h"

#include <span>

#include "common/base/status.h"
#include "common/core/token_constraint.h"

namespace sluice {
namespace {

// Checks a step: a bad one ends its own sequence, and reaches no plan.
Status CheckStep(const ConstraintStep& step, int32_t vocab_size) {
  if (!step.status.ok() || step.is_complete) return step.status;
  for (const TokenId token : step.forced) {
    if (token < 0 || token >= vocab_size) {
      return Internal("the constraint forces token ", token,
                      ", vocabulary size is ", vocab_size);
    }
  }
  return step.mask ? Validate(*step.mask, vocab_size) : OkStatus();
}

}  // namespace

void ConstraintSteps::Advance(Sequence& sequence, size_t num_new) const {
  if (!sequence.is_constrained()) return;
  sequence.has_step = false;
  sequence.request.constraint->Advance(
      std::span(sequence.tokens).last(num_new),
      [notice = notice_, id = sequence.id] { notice(id); });
}

std::optional<FinalEvent> ConstraintSteps::Take(Sequence& sequence,
                                                int32_t vocab_size,
                                                TimePoint now) const {
  const ConstraintStep* const step = sequence.request.constraint->Latest();
  if (step == nullptr) return std::nullopt;  // tokens came since
  const Status status = CheckStep(*step, vocab_size);
  if (!status.ok()) {
    return FinalEvent{.reason = FinishReason::kError, .status = status};
  }
  if (step->is_complete) return FinalEvent{.reason = FinishReason::kStop};
  sequence.has_step = true;
  sequence.had_late_step =
      sequence.num_emitted() > 0 && now - sequence.last_token > patience_;
  return std::nullopt;
}

bool ConstraintSteps::HoldsPlan(const std::vector<Sequence*>& running,
                                TimePoint now) {
  const TimePoint until = last_result_ + patience_;
  const bool holds =
      now < until &&
      std::any_of(running.begin(), running.end(), [](const Sequence* s) {
        return s->remaining() == 1 && s->awaits_mask() && !s->had_late_step;
      });
  if (holds) held_until_ = until;
  return holds;
}

}  // namespace sluice
