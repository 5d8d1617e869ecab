#include "common/pipeline/stage/stage_terms.h"

#include <algorithm>

#include "common/core/epochs.h"

namespace sluice {

Status StageTerms::CheckHold() const {
  if (highest_.term() < kMaxTerm) return OkStatus();
  return FailedPrecondition("this stage has no term left, its highest is ",
                            kMaxTerm, ": `sluice reset-term` resets it");
}

void StageTerms::BeginHold(uint64_t wanted, bool is_holder, TimePoint now) {
  if (!is_holder) highest_ = TermStart(highest_.term() + 1);
  const uint64_t term = highest_.term();
  const uint64_t raised = std::min(wanted, RaisedTerm(term, budget_.Left(now)));
  if (raised > term) {
    budget_.Take(raised - term, now);
    highest_ = TermStart(raised);
  }
  hold_ = highest_.term();
}

Status StageTerms::CheckEpoch(Epoch epoch, TimePoint now) const {
  if (epoch <= highest_) {
    return FailedPrecondition("epoch ", epoch, " is not above ", highest_,
                              ", which this stage has seen");
  }
  const uint64_t limit = RaisedTerm(hold_, kTermsPerHold);
  if (epoch.term() > limit) {
    return FailedPrecondition("epoch ", epoch, " has term ", epoch.term(),
                              ", limit ", limit, ": this hold has term ",
                              hold_);
  }
  const uint64_t rise = epoch.term() - highest_.term();
  const uint64_t left = budget_.Left(now);
  if (rise <= left) return OkStatus();
  return FailedPrecondition("epoch ", epoch, " raises the term by ", rise,
                            ", limit ", left, " at this time");
}

void StageTerms::BeginEpoch(Epoch epoch, TimePoint now) {
  budget_.Take(epoch.term() - highest_.term(), now);
  highest_ = epoch;
}

uint64_t StageTerms::Reset() {
  const uint64_t term = highest_.term();
  highest_ = Epoch();
  hold_ = 0;
  return term;
}

}  // namespace sluice
