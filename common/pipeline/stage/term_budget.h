#ifndef SLUICE_COMMON_PIPELINE_STAGE_TERM_BUDGET_H_
#define SLUICE_COMMON_PIPELINE_STAGE_TERM_BUDGET_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/base/clock.h"
#include "common/core/epochs.h"

namespace sluice {

// How far a stage's term may rise beyond one per hold: kTermsPerHold at once,
// and as many more in every 10 ms. So a peer that holds the stage again and
// again for a second does not part it from the others. One thread.
class TermBudget {
 public:
  // By how much the term may rise at `now`.
  uint64_t Left(TimePoint now) const {
    const Duration spent = std::max(full_at_ - now, Duration::zero());
    return kTermsPerHold -
           std::min<uint64_t>(kTermsPerHold,
                              static_cast<uint64_t>(
                                  (spent + kPerTerm - Duration(1)) / kPerTerm));
  }
  // Needs terms <= Left(now).
  void Take(uint64_t terms, TimePoint now) {
    full_at_ = std::max(full_at_, now) + static_cast<int64_t>(terms) * kPerTerm;
  }

 private:
  static constexpr Duration kPerTerm = std::chrono::microseconds(10);
  TimePoint full_at_{};  // when all of it is left
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_TERM_BUDGET_H_
