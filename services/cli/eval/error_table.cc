#include "services/cli/eval/error_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace sluice::cli {

void ErrorStats::Add(double error) {
  const double size = std::isnan(error)
                          ? std::numeric_limits<double>::infinity()
                          : std::fabs(error);
  ++count;
  sum += size;
  max = std::max(max, size);
}

void ErrorStats::Add(const ErrorStats& other) {
  count += other.count;
  sum += other.sum;
  max = std::max(max, other.max);
}

AnswerDifference Compare(const ProbeAnswer& a, const ProbeAnswer& b) {
  AnswerDifference out;
  const size_t common = std::min(a.ids.size(), b.ids.size());
  out.tokens = std::max(a.ids.size(), b.ids.size());
  out.same_ids = a.ids == b.ids;
  out.first_different = static_cast<size_t>(
      std::mismatch(a.ids.begin(), a.ids.begin() + std::ptrdiff_t(common),
                    b.ids.begin())
          .first -
      a.ids.begin());
  for (size_t i = 0; i < out.first_different; ++i) {
    const double x = a.logprobs[i], y = b.logprobs[i];
    if (i == 0 && std::isnan(x) && std::isnan(y)) continue;
    out.logprobs.Add(x - y);
    if (!(x == y)) ++out.different_logprobs;
  }
  return out;
}

std::string Scientific(double value) {
  if (value == 0) return "0";
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
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

}  // namespace sluice::cli
