#include "services/cli/eval/report.h"

#include <ctime>
#include <filesystem>
#include <fstream>

#include "services/cli/eval/error_table.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? OkStatus() : Unavailable("cannot write ", path);
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

CheckResult FailedCheck(const std::string& title, const Status& status) {
  CheckResult result;
  result.title = title;
  result.summary = "could not be made: " + Message(status);
  result.body = "This check could not be made: " + Message(status) + "\n";
  return result;
}

std::string ReportMarkdown(const ReportSubject& subject,
                           const std::vector<CheckResult>& checks,
                           const std::string& plot_prefix) {
  std::string out = Cat("# Evaluation of ", subject.model, "\n\n", subject.url,
                        ", ", Today(), ".\n\n");
  std::vector<std::vector<std::string>> rows = {{"check", "result", "figures"}};
  for (const CheckResult& check : checks) {
    rows.push_back(
        {check.title, check.passed ? "passed" : "**FAILED**", check.summary});
  }
  out += MarkdownTable(rows);
  for (const CheckResult& check : checks) {
    out += Cat("\n## ", check.title, "\n\n", check.body);
    if (!check.svg_name.empty()) {
      out += Cat("\n![", check.title, "](", plot_prefix, check.svg_name,
                 ".svg)\n");
    }
  }
  return out;
}

Status WriteReport(const ReportSubject& subject,
                   const std::vector<CheckResult>& checks,
                   const std::string& path) {
  const std::string prefix = fs::path(path).stem().string() + "-";
  const fs::path folder = fs::path(path).parent_path();
  for (const CheckResult& check : checks) {
    if (check.svg_name.empty()) continue;
    SLUICE_RETURN_IF_ERROR(WriteText(
        (folder / (prefix + check.svg_name + ".svg")).string(), check.svg));
  }
  return WriteText(path, ReportMarkdown(subject, checks, prefix));
}

}  // namespace sluice::cli
