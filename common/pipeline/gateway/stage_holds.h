#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_HOLDS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_HOLDS_H_

#include <cstdint>
#include <optional>

#include "common/base/clock.h"
#include "common/pipeline/gateway/stage_process.h"

namespace sluice {

// How a gateway takes hold of stages: opens Control, and raises terms that are
// below the others'. A value, one thread.
class StageHolds {
 public:
  // Opens Control of `stage`, whose term shall become `term`.
  void Take(StageProcess& stage, uint64_t term, TimePoint now,
            act::Outbox& out) {
    stage.Hello(++links_, term, now, out);
  }

  // Raises the terms of those `holders` that are below `term`, one step at a
  // time, so that an Assign raises none. Returns the stage that is the lowest,
  // or null: none is below.
  const StageProcess* Raise(const StageProcesses& holders, uint64_t term,
                            TimePoint now, act::Outbox& out);
  // When the next step may follow; nothing: no term is being raised.
  std::optional<TimePoint> next_raise() const { return raise_at_; }
  // Whether the next step is due at `now`.
  bool IsDue(TimePoint now) {
    const bool due = raise_at_.has_value() && now >= *raise_at_;
    if (due) raise_at_.reset();
    return due;
  }

 private:
  uint64_t links_ = 0;
  std::optional<TimePoint> raise_at_;
  uint64_t raised_from_ = 0;  // the lowest term at the latest step
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_HOLDS_H_
