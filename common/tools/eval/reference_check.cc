#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/tools/eval/comparison.h"
#include "common/tools/load/load_summary.h"

namespace sluice::eval {
namespace {

using TableRow = std::vector<std::string>;

TableRow RowOf(const PromptComparison& prompt) {
  const auto shown = [](const ErrorStats& stats, double value) {
    return stats.count == 0 ? std::string("-") : Scientific(value);
  };
  double divergence = 0;
  for (const PositionError& error : prompt.positions) {
    divergence = std::max(divergence, error.divergence);
  }
  std::string compared =
      prompt.compared.empty() ? "greedy ids" : prompt.compared;
  if (!prompt.left_out.empty()) compared = prompt.left_out;
  return {prompt.name,
          Cat(prompt.tokens),
          compared,
          shown(prompt.logits, prompt.logits.Mean()),
          shown(prompt.logits, prompt.logits.max),
          shown(prompt.logprobs, prompt.logprobs.Mean()),
          shown(prompt.logprobs, prompt.logprobs.max),
          prompt.positions.empty() ? "-" : Scientific(divergence),
          prompt.greedy_given
              ? Cat(prompt.greedy_same, " of ", prompt.greedy,
                    prompt.greedy_note.empty() ? "" : ", ", prompt.greedy_note)
              : "-"};
}

TableRow PercentileRow(const std::string& name,
                       const std::vector<double>& sorted) {
  TableRow row = {name};
  double sum = 0;
  for (const double value : sorted) sum += value;
  row.push_back(Scientific(sum / double(sorted.size())));
  for (const double percent : {50.0, 90.0, 99.0, 99.9, 100.0}) {
    row.push_back(Scientific(load::Percentile(sorted, percent)));
  }
  return row;
}

// Returns the text on all positions; empty without any.
std::string PositionsText(const Comparison& found) {
  const std::vector<double> divergences = found.SortedDivergences();
  if (divergences.empty()) return "";
  std::string text =
      Cat("\nOver ", divergences.size(), " positions, of which ",
          Percent(found.SameTop()), " have the reference's likeliest id:\n\n",
          MarkdownTable({{"", "mean", "p50", "p90", "p99", "p99.9", "max"},
                         PercentileRow("error of the token's log probability",
                                       found.SortedErrors()),
                         PercentileRow("divergence", divergences)}));
  if (found.Perplexity() > 0) {
    text +=
        Cat("\nPerplexity of the prompts: ", Fixed(found.Perplexity(), 4),
            ", the reference's ", Fixed(found.ReferencePerplexity(), 4), ".\n");
  }
  return text;
}

}  // namespace

CheckResult ReferenceResult(const Comparison& found,
                            const ReferenceLimits& limits) {
  std::vector<TableRow> rows = {{"prompt", "tokens", "compared", "logits: mean",
                                 "max", "log probabilities: mean", "max",
                                 "divergence", "greedy ids"}};
  bool passed = true;
  for (const PromptComparison& prompt : found.prompts) {
    passed = passed && prompt.greedy_passed;
    rows.push_back(RowOf(prompt));
  }
  const ErrorStats logits = found.Logits(), logprobs = found.Logprobs();
  CheckResult result;
  result.title = "Against the reference";
  result.passed = passed && logits.max <= limits.tolerance &&
                  logprobs.max <= limits.tolerance;
  result.summary = Cat(
      "log probabilities: mean error ", Scientific(logprobs.Mean()), ", max ",
      Scientific(logprobs.max), " (limit ", Scientific(limits.tolerance),
      "); greedy ids: ", found.GreedySame(), " of ", found.Greedy());
  if (logits.count > 0) {
    result.summary =
        Cat("logits: mean error ", Scientific(logits.Mean()), ", max ",
            Scientific(logits.max), "; ", result.summary);
  }
  if (found.LeftOut() > 0) {
    result.summary += Cat("; left out: ", found.LeftOut(), " of ",
                          found.prompts.size(), " prompts");
  }
  result.body = Cat(
      "Errors are absolute; divergence is the largest Kullback-Leibler "
      "divergence of a position, in nats. A greedy answer may part from the "
      "reference where its two best logits are within ",
      Scientific(limits.gap), ".\n\n", MarkdownTable(rows),
      PositionsText(found));
  return result;
}

}  // namespace sluice::eval
