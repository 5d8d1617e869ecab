#ifndef SLUICE_COMMON_TOOLS_EVAL_COST_TABLE_H_
#define SLUICE_COMMON_TOOLS_EVAL_COST_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tools/eval/comparison.h"
#include "common/tools/eval/svg_plot.h"

// Forms of a model beside one reference: sizes, errors and rates, as a table
// and as plots.
namespace sluice::eval {

// A form: a model as its weights are kept.
struct CostRow {
  std::string form;
  uint64_t bytes = 0;       // of its weights; 0: unknown
  Comparison found;         // with the reference
  double tokens_per_s = 0;  // of one greedy answer; 0: unknown
};

// Returns the table's Markdown: a row per form, in their order, and above it
// the reference's perplexity if it has one.
std::string CostTable(const std::vector<CostRow>& rows);

// The plots are logarithmic in what they show of errors: values below 1e-9 are
// shown as 1e-9.

// A form's size against its mean divergence. Forms of unknown size are left
// out.
Plot CostPlot(const std::vector<CostRow>& rows);

// The mean divergence by position, a line per form; positions are taken
// together in steps that grow with them.
Plot DivergenceByPosition(const std::vector<CostRow>& rows);

// The mean and the largest error of a token's log probability by position, and
// the mean divergence.
Plot ErrorByPosition(const Comparison& found);

// Returns the tokens per second of an answer of `tokens` to `prompt_json`, by
// the time of its tokens behind the first.
StatusOr<double> MeasureRate(const EvalApi& api, const std::string& prompt_json,
                             int64_t tokens);

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_COST_TABLE_H_
