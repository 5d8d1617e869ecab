#ifndef SLUICE_COMMON_SERVING_BEST_CHOICES_H_
#define SLUICE_COMMON_SERVING_BEST_CHOICES_H_

#include <vector>

#include "common/serving/choice_text.h"

namespace sluice::serving {

// An answer with fewer choices than are made.
struct BestOf {
  int made = 1;   // per prompt
  int shown = 1;  // of them; the likeliest
  bool shows_logprobs = false;
};

// Returns the shown ones of `choices`, the whole choices of all prompts with
// the log probabilities of their tokens: of each prompt those with the highest
// mean per token, the highest first, of equal ones that with the lower index. A
// choice without a token comes last. Removes log probabilities that the answer
// does not show.
std::vector<Delta> BestChoices(std::vector<Delta> choices,
                               const BestOf& best_of);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_BEST_CHOICES_H_
