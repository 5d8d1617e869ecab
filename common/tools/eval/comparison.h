#ifndef SLUICE_COMMON_TOOLS_EVAL_COMPARISON_H_
#define SLUICE_COMMON_TOOLS_EVAL_COMPARISON_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/tools/eval/api.h"
#include "common/tools/eval/error_stats.h"
#include "common/tools/eval/reference.h"
#include "common/tools/eval/report.h"

// An endpoint's answers beside a reference's.
namespace sluice::eval {

struct ReferenceLimits {
  double tolerance = 1e-3;  // of logits and log probabilities
  // A greedy answer may differ where the reference's two best logits are closer
  // than this.
  double gap = 0.01;
};

// A position of a prompt and its answer: the distribution of the token there.
struct PositionError {
  size_t position = 0;
  double logprob = 0;     // of the token, less the reference's
  double divergence = 0;  // Kullback-Leibler from the reference, in nats
  bool same_top = false;  // both have the same likeliest id
};

struct PromptComparison {
  std::string name;
  size_t tokens = 0;     // of the prompt
  std::string compared;  // the compared parts of the reference
  std::string left_out;  // the reason; empty: it was compared
  ErrorStats logits, logprobs;
  // Where the reference has logits or likeliest ids.
  std::vector<PositionError> positions;
  // Sums of the negative log probabilities of the prompt's tokens.
  double surprise = 0, reference_surprise = 0;
  size_t surprised = 0;  // their number
  bool greedy_given = false;
  size_t greedy = 0, greedy_same = 0;  // ids; those before the first other one
  bool greedy_passed = true;
  std::string greedy_note;
};

// The comparison of all prompts.
struct Comparison {
  std::vector<PromptComparison> prompts;

  ErrorStats Logits() const;
  ErrorStats Logprobs() const;
  size_t Greedy() const;
  size_t GreedySame() const;
  size_t LeftOut() const;
  // Absolute errors of tokens, and divergences, each sorted.
  std::vector<double> SortedErrors() const;
  std::vector<double> SortedDivergences() const;
  // Share of the positions with the same likeliest id; 0 without positions.
  double SameTop() const;
  // exp of the mean surprise of the prompts' tokens; 0 without any.
  double Perplexity() const;
  double ReferencePerplexity() const;
};

// Asks the endpoint for each prompt: logits (/debug/logits, else echo and
// logprobs), log probabilities and greedy ids, as far as the reference has
// them. A prompt that is longer than the endpoint's context is left out; it is
// INVALID_ARGUMENT if nothing is left, or the reference has ids alone.
// `on_prompt`, if given, is called with each prompt's name before it is asked;
// its error ends the comparison.
StatusOr<Comparison> CompareWithReference(
    const EvalApi& api, const std::vector<ReferencePrompt>& prompts,
    const ReferenceLimits& limits,
    const std::function<Status(const std::string&)>& on_prompt = {});

// Returns the check's findings: failed if an error is above the tolerance or a
// greedy id differs where the gap is wide.
CheckResult ReferenceResult(const Comparison& found,
                            const ReferenceLimits& limits);

// Returns the Kullback-Leibler divergence of the endpoint's distribution from
// the reference's, both known by their likeliest ids: ids that both name are
// outcomes of their own, all others are one outcome. At most that of the whole
// distributions.
double TopDivergence(const std::vector<std::pair<int64_t, double>>& reference,
                     const std::vector<std::pair<int64_t, double>>& endpoint);

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_COMPARISON_H_
