#ifndef SLUICE_SERVICES_CLI_EVAL_CHECKS_H_
#define SLUICE_SERVICES_CLI_EVAL_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "services/cli/eval/api.h"
#include "services/cli/eval/reference.h"
#include "services/cli/eval/report.h"

// The checks of `sluice eval`. Each queries an endpoint and returns its
// findings; an error means that the check was not possible.
namespace sluice::cli {

// The mean and maximum of absolute errors. A NaN counts as infinite: what
// is not a number is never close to one.
struct ErrorStats {
  size_t count = 0;
  double sum = 0, max = 0;

  void Add(double error);
  void Add(const ErrorStats& other);
  double Mean() const { return count == 0 ? 0 : sum / double(count); }
};

// How two answers to one probe differ.
struct AnswerDifference {
  size_t tokens = 0;  // compared
  bool same_ids = true;
  size_t first_different = 0;     // token, where the ids part
  size_t different_logprobs = 0;  // of tokens before that, in any bit
  ErrorStats logprobs;            // of tokens before that
  // Ids alone do not make answers the same: some value must be compared.
  bool Same() const {
    return same_ids && different_logprobs == 0 && logprobs.count > 0;
  }
};
// A log probability that neither answer gives (NaN) is left out for the first
// token, which has none; for every other it counts as different.
AnswerDifference Compare(const ProbeAnswer& a, const ProbeAnswer& b);

struct ReferenceLimits {
  double tolerance = 1e-3;  // of logits and log probabilities
  // Where the reference's two best logits are closer than this, a greedy
  // answer may part from it.
  double gap = 0.01;
};

// Logits (/debug/logits where it is on, else echo and logprobs) and greedy
// tokens against a reference.
StatusOr<CheckResult> CheckReference(
    const EvalApi& api, const std::vector<ReferencePrompt>& prompts,
    const ReferenceLimits& limits);

// The probes alone, then again all at once among `crowd` requests: the same
// ids and the same bits of every log probability.
StatusOr<CheckResult> CheckBatch(const EvalApi& api,
                                 const std::vector<Probe>& probes, int crowd);

// What the report says of `running`, the most sequences that the server's
// gauge told while the crowd was asked; below 0: it told none.
std::string OverlapNote(double running);

// The probes at two endpoints: the same ids, and log probabilities that
// differ by `tolerance` at most (0: the same bits).
StatusOr<CheckResult> CheckCut(const EvalApi& api, const EvalApi& other,
                               const std::vector<Probe>& probes,
                               double tolerance);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_EVAL_CHECKS_H_
