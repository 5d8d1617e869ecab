#include "common/tools/eval/report.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace sluice::eval {
namespace {

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

std::string Scientific(double value) {
  if (value == 0) return "0";
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

std::string Fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string Percent(double share) {
  if (share >= 1) return "100 %";
  if (share <= 0) return "0 %";
  // Rounded, no share but all is all.
  return Fixed(std::clamp(share * 100, 0.01, 99.99), 2) + " %";
}

std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows) {
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) {
    out += "|";
    for (const std::string& cell : rows[i]) {
      out += ' ';
      for (const char c : cell) {
        if (c == '|') out += '\\';
        out += c == '\n' ? ' ' : c;
      }
      out += " |";
    }
    out += "\n";
    if (i > 0) continue;
    out += "|";
    for (size_t j = 0; j < rows[0].size(); ++j) out += " --- |";
    out += "\n";
  }
  return out;
}

CheckResult FailedCheck(const std::string& title, const Status& status) {
  CheckResult result;
  result.title = title;
  result.summary = "could not be made: " + Message(status);
  result.body = "This check could not be made: " + Message(status) + "\n";
  return result;
}

std::string ReportMarkdown(const ReportSubject& subject,
                           const std::vector<CheckResult>& checks) {
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
  }
  return out;
}

}  // namespace sluice::eval
