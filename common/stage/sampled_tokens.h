#ifndef SLUICE_COMMON_STAGE_SAMPLED_TOKENS_H_
#define SLUICE_COMMON_STAGE_SAMPLED_TOKENS_H_

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/core/step_plan.h"

namespace sluice {

// The tokens that the latest kMaxStepsBack steps of an epoch sampled, for
// chunks that name the step that samples their token. A value; not thread-safe.
class SampledTokens {
 public:
  // Takes the last token, or the failure, of every result of `step`. Steps come
  // in any order.
  void Add(StepId step, const std::vector<SequenceResult>& results);

  // Whether this has had the results of all steps that `plan`'s chunks name.
  bool HasAll(const StepPlan& plan) const;

  // Sets the tokens of the chunks that name a step, but for those of
  // `in_flight`. A sequence that failed in its step keeps the placeholder and
  // joins `failed`, with its status. FAILED_PRECONDITION if a step sampled no
  // token for its sequence.
  Status Resolve(StepPlan& plan, std::vector<SequenceResult>& failed,
                 std::optional<StepId> in_flight = {}) const;

  void Clear() { steps_.clear(); }

 private:
  std::map<StepId, std::unordered_map<SequenceId, StatusOr<TokenId>>> steps_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_SAMPLED_TOKENS_H_
