#ifndef SLUICE_SERVICES_CLI_SVG_CHART_H_
#define SLUICE_SERVICES_CLI_SVG_CHART_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::cli {

// One line, set of steps or dots of a chart.
struct ChartSeries {
  std::string name;                               // for the legend
  std::vector<std::pair<double, double>> points;  // those not finite: left out
  enum class Shape { kLine, kSteps, kDots } shape = Shape::kLine;
};

// A value on the x axis that is told by a line of its own.
struct ChartMark {
  double x = 0;
  std::string label;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;
  std::vector<ChartMark> marks;
  bool log_y = false;     // values not above 0 are left out
  bool from_zero = true;  // the y axis begins at 0 (not with log_y)
};

// One chart below or beside another (`columns` per row), as a whole SVG 1.1
// document: readable on light and dark pages, without scripts and outside
// requests. All text is escaped.
std::string DrawCharts(std::string_view heading,
                       const std::vector<Chart>& charts, int columns = 2);

// Points of a histogram of `values`, for Shape::kSteps: at most `bins` equal
// bins up to their largest value, each with its share of the values in %.
// Values beyond `limit` count in the last bin.
std::vector<std::pair<double, double>> Histogram(
    const std::vector<double>& values, int bins, double limit);

// `text` with XML's special characters escaped, control characters dropped.
std::string EscapeXml(std::string_view text);

// Round numbers that cover low to high, about `count` of them.
std::vector<double> NiceTicks(double low, double high, int count);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_SVG_CHART_H_
