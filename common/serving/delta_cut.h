#ifndef SLUICE_COMMON_SERVING_DELTA_CUT_H_
#define SLUICE_COMMON_SERVING_DELTA_CUT_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/serving/choice_text.h"
#include "common/serving/event_id.h"

namespace sluice::serving {

// Takes off the front of one choice's deltas what a client has of them, so that
// the rest is the rest of the answer, wherever the deltas of an earlier stream
// were cut. One thread.
class DeltaCut {
 public:
  // `told`: what the client has of the choice.
  explicit DeltaCut(const ChoiceProgress& told) : left_(told) {}

  // Cuts the choice's next delta; of a choice that the client has whole nothing
  // is left. INVALID_ARGUMENT, about Last-Event-ID, if the answer has no such
  // place: it ends before, or a character is in the way.
  Status Apply(Delta& delta);

 private:
  void CutEntries(Delta& delta);
  Status CutCalls(Delta& delta);
  Status CheckEnd() const;

  // What the client has of the deltas to come; `arguments` is of the call that
  // is the last of `calls`, which counts from the choice's begin.
  ChoiceProgress left_;
  uint64_t calls_seen_ = 0;
  std::vector<TokenId> cut_tokens_;  // which no delta tells yet
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_DELTA_CUT_H_
