#ifndef SLUICE_SERVICES_CLI_EVAL_REPORT_H_
#define SLUICE_SERVICES_CLI_EVAL_REPORT_H_

#include <string>
#include <vector>

#include "common/base/status.h"

namespace sluice::cli {

// What a check found.
struct CheckResult {
  std::string title;
  bool passed = false;
  std::string summary;   // one line, for the first table
  std::string body;      // Markdown
  std::string svg_name;  // "reference"; empty: no plot
  std::string svg;
};

// A check that could not be made counts as failed.
CheckResult FailedCheck(const std::string& title, const Status& status);

// What was looked at, for the report's head.
struct ReportSubject {
  std::string model, url;
};

// The report. `plot_prefix` stands before the names of the plots it shows.
std::string ReportMarkdown(const ReportSubject& subject,
                           const std::vector<CheckResult>& checks,
                           const std::string& plot_prefix);

// Writes the report to `path`, and REPORT-NAME.svg for each plot beside it.
Status WriteReport(const ReportSubject& subject,
                   const std::vector<CheckResult>& checks,
                   const std::string& path);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_EVAL_REPORT_H_
