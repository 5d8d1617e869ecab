#include "services/cli/svg_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/services/cli/xml_check.h"

namespace sluice::cli {
namespace {

Chart SomeChart() {
  Chart chart;
  chart.title = "a < b & \"c\"";
  chart.x_label = std::string("x");
  chart.y_label = std::string("y");
  chart.series.push_back({"one", {{0, 1}, {1, 3}, {2, 2}}});
  chart.series.push_back({"two", {{0, 2}, {2, 5}}, ChartSeries::Shape::kDots});
  chart.marks.push_back({1, "p50"});
  return chart;
}

TEST(SvgChartTest, ADocumentIsWellFormedAndItsTextEscaped) {
  const std::string svg = DrawCharts("<heading>", {SomeChart(), SomeChart()});
  EXPECT_EQ(testing::XmlProblem(svg), "");
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("<heading>"), std::string::npos);
}

TEST(SvgChartTest, ColoursFollowThePageAndNothingIsFetched) {
  const std::string svg = DrawCharts("h", {SomeChart()});
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(svg.find("href"), std::string::npos);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

TEST(SvgChartTest, NoNumberOfADocumentIsInfiniteOrNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  Chart odd;
  odd.series.push_back({"", {{0, nan}, {1, infinity}, {nan, 1}}});
  Chart flat;
  flat.series.push_back({"", {{5, 7}, {5, 7}}});
  Chart zeros;
  zeros.log_y = true;
  zeros.series.push_back({"", {{1, 0}, {2, -1}, {3, 1e-5}}});
  Chart empty;
  const std::string svg = DrawCharts("h", {odd, flat, zeros, empty});
  EXPECT_EQ(testing::XmlProblem(svg), "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SvgChartTest, HistogramSharesAddUpToAHundredPercent) {
  const auto points = Histogram({1, 2, 2, 3, 100}, 4, 10);
  double sum = 0;
  // The first and the last two points only draw the edges.
  for (size_t i = 1; i + 2 < points.size(); ++i) sum += points[i].second;
  EXPECT_NEAR(sum, 100, 1e-9);
  EXPECT_DOUBLE_EQ(points.back().first, 10);  // 100 is in the last bin
  EXPECT_TRUE(Histogram({}, 4, 10).empty());
}

TEST(SvgChartTest, TicksAreRoundAndCoverTheRange) {
  EXPECT_EQ(NiceTicks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  const auto ticks = NiceTicks(3, 97, 5);
  EXPECT_LE(ticks.front(), 3);
  EXPECT_GE(ticks.back(), 97);
  EXPECT_LE(ticks.size(), 8u);
}

}  // namespace
}  // namespace sluice::cli
