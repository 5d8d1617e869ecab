#ifndef SLUICE_COMMON_PIPELINE_STAGE_STAGE_TERMS_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STAGE_TERMS_H_

#include <cstdint>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/pipeline/stage/term_budget.h"

namespace sluice {

// The terms of one stage: every hold has one of its own, above all that the
// stage has seen. One thread, or under a lock.
class StageTerms {
 public:
  // The highest epoch of all gateways, or the start of the hold's term.
  Epoch highest() const { return highest_; }

  // FAILED_PRECONDITION, with what resets it, if there is no term for a new
  // hold.
  Status CheckHold() const;
  // A hold begins, a new one unless `is_holder`. Raises its term towards
  // `wanted`, as far as it may rise.
  void BeginHold(uint64_t wanted, bool is_holder, TimePoint now);

  // FAILED_PRECONDITION unless an Assign may have `epoch` at `now`.
  Status CheckEpoch(Epoch epoch, TimePoint now) const;
  // Needs CheckEpoch.
  void BeginEpoch(Epoch epoch, TimePoint now);

  // Forgets all. Returns the term until now.
  uint64_t Reset();

 private:
  Epoch highest_;
  uint64_t hold_ = 0;  // the term that the latest hold was given
  TermBudget budget_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STAGE_TERMS_H_
