#ifndef SLUICE_COMMON_TOOLS_EVAL_CHECKS_H_
#define SLUICE_COMMON_TOOLS_EVAL_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tools/eval/api.h"
#include "common/tools/eval/error_stats.h"
#include "common/tools/eval/report.h"

// The checks of `sluice eval`. Each queries an endpoint and returns its
// findings; an error means that the check was not possible.
namespace sluice::eval {

// The difference of two answers to one probe.
struct AnswerDifference {
  size_t tokens = 0;  // compared
  bool same_ids = true;
  size_t first_different = 0;     // index of the first different id
  size_t different_logprobs = 0;  // of earlier tokens, in any bit
  ErrorStats logprobs;            // of earlier tokens
  // Returns whether the answers are the same. Needs a compared log probability:
  // equal ids alone are not enough.
  bool Same() const {
    return same_ids && different_logprobs == 0 && logprobs.count > 0;
  }
};
// Compares two answers. A log probability that neither has (NaN) counts as
// equal for the first token, and as different for every other.
AnswerDifference Compare(const ProbeAnswer& a, const ProbeAnswer& b);

// Checks that the probes have the same ids and bits of log probabilities alone
// and among `crowd` concurrent requests.
StatusOr<CheckResult> CheckBatch(const EvalApi& api,
                                 const std::vector<Probe>& probes, int crowd);

// Returns the report's note about `running`, the most sequences that the
// server's gauge showed during the batch; below 0: no gauge.
std::string OverlapNote(double running);

// Checks that two endpoints give the same ids, and log probabilities that
// differ by `tolerance` at most (0: the same bits).
StatusOr<CheckResult> CheckCut(const EvalApi& api, const EvalApi& other,
                               const std::vector<Probe>& probes,
                               double tolerance);

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_CHECKS_H_
