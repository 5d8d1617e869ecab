#ifndef SLUICE_SERVICES_CLI_EVAL_ERROR_TABLE_H_
#define SLUICE_SERVICES_CLI_EVAL_ERROR_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "services/cli/eval/api.h"

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

// "1.2e-07", "0".
std::string Scientific(double value);
// "12.345" with so many digits after the point.
std::string Fixed(double value, int digits);

// A Markdown table; the first row is its head. Cells are escaped.
std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_EVAL_ERROR_TABLE_H_
