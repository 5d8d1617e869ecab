#include "common/pipeline/gateway/term_check.h"

#include <algorithm>
#include <vector>

#include "common/core/epochs.h"
#include "common/pipeline/gateway/handshake.h"

namespace sluice {

uint64_t TermOfMost(const StageProcesses& stages, uint64_t own) {
  std::vector<uint64_t> terms;
  for (const auto& stage : stages) {
    if (stage->welcomed()) terms.push_back(stage->facts().term);
  }
  if (terms.empty()) return own;
  const uint64_t highest = *std::ranges::max_element(terms);
  const bool counts = own != 0 && !IsAboveBy(own, highest, kMostTermsAbove);
  if (counts) terms.push_back(own);
  const auto middle = terms.begin() + (std::ssize(terms) - 1) / 2;
  std::ranges::nth_element(terms, middle);
  return counts ? std::max(*middle, own) : *middle;
}

Status CheckTerm(const StageFacts& stage, uint64_t most) {
  if (IsAboveBy(stage.term, most, kMostTermsAbove)) {
    return FailedPrecondition("its term ", stage.term, " is more than ",
                              kMostTermsAbove, " above the others', ", most,
                              ": ", ResetTermHint(stage.address));
  }
  if (IsAboveBy(most, stage.term, kMostTermsBelow)) {
    return FailedPrecondition("its term ", stage.term, " is more than ",
                              kMostTermsBelow, " below the others', ", most,
                              ": `sluice reset-term` resets theirs");
  }
  return OkStatus();
}

}  // namespace sluice
