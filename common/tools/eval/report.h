#ifndef SLUICE_COMMON_TOOLS_EVAL_REPORT_H_
#define SLUICE_COMMON_TOOLS_EVAL_REPORT_H_

#include <string>
#include <vector>

#include "common/base/status.h"

namespace sluice::eval {

// The findings of a check.
struct CheckResult {
  std::string title;
  bool passed = false;
  std::string summary;  // one line, for the report's first table
  std::string body;     // Markdown
};

// Returns the result of a check that could not run: failed.
CheckResult FailedCheck(const std::string& title, const Status& status);

// The endpoint, for the report's head.
struct ReportSubject {
  std::string model, url;
};

// Returns the report, in Markdown.
std::string ReportMarkdown(const ReportSubject& subject,
                           const std::vector<CheckResult>& checks);

// "1.2e-07", "0".
std::string Scientific(double value);
// "3.1416" with four decimals.
std::string Fixed(double value, int decimals);
// "98.5 %" of 0.985; 100 % and 0 % for exact shares alone.
std::string Percent(double share);
// Returns a Markdown table; the first row is its head. Cells are escaped.
std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_REPORT_H_
