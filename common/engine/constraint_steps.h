#ifndef SLUICE_COMMON_ENGINE_CONSTRAINT_STEPS_H_
#define SLUICE_COMMON_ENGINE_CONSTRAINT_STEPS_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/core/ids.h"
#include "common/engine/sequence.h"

namespace sluice {

// The steps of sequences' constraints: has them computed, takes them in, and
// holds a plan back for a moment where masks come late. The scheduler owns it.
class ConstraintSteps {
 public:
  // Tells, on any thread, that the step of a sequence's constraint is there.
  using Notice = std::function<void(SequenceId)>;

  // `notice` may be called after the object is gone.
  explicit ConstraintSteps(Notice notice) : notice_(std::move(notice)) {}

  // Has the constraint compute the step behind all tokens, of which the last
  // `num_new` are new. Does nothing for a sequence without a constraint.
  void Advance(Sequence& sequence, size_t num_new) const;

  // Takes in the step that is there, if one is. Returns the end of a sequence
  // whose constraint failed, gave a bad step, or is complete.
  std::optional<FinalEvent> Take(Sequence& sequence, int32_t vocab_size,
                                 TimePoint now) const;

  // The latest result came now; its plan took `step_time`.
  void OnResult(Duration step_time, TimePoint now) {
    last_result_ = now;
    patience_ = std::min(step_time / 8, kMaxPatience);
  }

  // Whether the next plan waits for masks of `running` behind the latest
  // result: a plan that leaves with the first of them would part sequences
  // that go together. A sequence whose mask was late the last time is not
  // waited for.
  bool HoldsPlan(const std::vector<Sequence*>& running, TimePoint now);
  // No plan is held any more.
  void Release() { held_until_ = TimePoint::max(); }
  // Until then a plan is held; TimePoint::max(): no plan is.
  TimePoint held_until() const { return held_until_; }

 private:
  static constexpr Duration kMaxPatience = std::chrono::milliseconds(5);

  const Notice notice_;
  TimePoint last_result_{};
  Duration patience_{};
  TimePoint held_until_ = TimePoint::max();
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_CONSTRAINT_STEPS_H_
