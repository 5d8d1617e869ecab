#include <utility>

#include "services/cli/eval/checks.h"
#include "services/cli/eval/error_table.h"

namespace sluice::cli {

StatusOr<CheckResult> CheckCut(const EvalApi& api, const EvalApi& other,
                               const std::vector<Probe>& probes,
                               double tolerance) {
  std::vector<std::vector<std::string>> rows = {
      {"prompt", "tokens", "ids", "log probabilities that differ",
       "largest difference"}};
  size_t tokens = 0, failed = 0;
  ErrorStats errors;
  for (const Probe& probe : probes) {
    SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer here, api.Ask(probe));
    SLUICE_ASSIGN_OR_RETURN(const ProbeAnswer there, other.Ask(probe));
    const AnswerDifference found = Compare(here, there);
    const bool same = tolerance > 0
                          ? found.same_ids && found.logprobs.count > 0 &&
                                found.logprobs.max <= tolerance
                          : found.Same();
    if (!same) ++failed;
    tokens += found.tokens;
    errors.Add(found.logprobs);
    rows.push_back(
        {probe.name, Cat(found.tokens),
         found.same_ids ? "same" : Cat("part at ", found.first_different),
         Cat(found.different_logprobs), Scientific(found.logprobs.max)});
  }
  CheckResult result;
  result.title = "Cut invariance";
  result.passed = failed == 0;
  result.summary = Cat(probes.size() - failed, " of ", probes.size(),
                       " answers the same at ", other.url(), ", ", tokens,
                       " tokens, largest difference ", Scientific(errors.max));
  result.body = Cat("The same requests at ", api.url(), " and at ", other.url(),
                    ". Ids must be the same, and log probabilities ",
                    tolerance > 0 ? Cat("within ", Scientific(tolerance))
                                  : std::string("in every bit"),
                    ".\n\n", MarkdownTable(rows));
  return result;
}

}  // namespace sluice::cli
