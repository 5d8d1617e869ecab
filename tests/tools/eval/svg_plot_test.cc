#include "common/tools/eval/svg_plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

namespace sluice::eval {
namespace {

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// The attribute's value of the first element of that name.
double ValueOf(const std::string& svg, const std::string& element,
               const std::string& name) {
  std::smatch found;
  const std::regex pattern("<" + element + " [^>]*\\b" + name +
                           "=\"(-?[0-9.]+)\"");
  return std::regex_search(svg, found, pattern) ? std::stod(found[1]) : -1;
}

TEST(AxisMarksTest, LinearMarksAreRound) {
  EXPECT_EQ(AxisMarks(0, 10, false), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  const auto signs = AxisMarks(-1, 1, false);
  ASSERT_EQ(signs.size(), 5u);
  EXPECT_EQ(signs[0], -1);
  EXPECT_EQ(signs[2], 0);
  for (const double high : {0.013, 3.7, 941.0, 2.5e7}) {
    const auto marks = AxisMarks(0, high, false);
    EXPECT_GE(marks.size(), 3u) << high;
    EXPECT_LE(marks.size(), 8u) << high;
    EXPECT_EQ(marks.front(), 0);
    EXPECT_LE(marks.back(), high);
  }
}

TEST(AxisMarksTest, LogarithmicMarksArePowersOfTen) {
  const auto wide = AxisMarks(3e-9, 2, true);
  for (const double mark : wide) {
    EXPECT_NEAR(std::log10(mark), std::round(std::log10(mark)), 1e-9);
  }
  EXPECT_GE(wide.size(), 4u);
  EXPECT_LE(wide.size(), 10u);
  const auto narrow = AxisMarks(20, 90, true);
  EXPECT_EQ(narrow, (std::vector<double>{20, 50}));
}

TEST(PlotSvgTest, LargerValuesAreHigherAndFurtherRight) {
  Plot plot;
  plot.series = {{"", {{1, 1, "low"}}, false}};
  plot.series[0].points.push_back({9, 5, "high"});
  const std::string svg = PlotSvg(plot);
  const std::string second = svg.substr(svg.rfind("<circle"));
  EXPECT_LT(ValueOf(svg, "circle", "cx"), ValueOf(second, "circle", "cx"));
  EXPECT_GT(ValueOf(svg, "circle", "cy"), ValueOf(second, "circle", "cy"));
  EXPECT_EQ(Count(svg, ">high</text>"), 1u);
}

TEST(PlotSvgTest, ALogarithmicAxisHasEqualStepsForEqualFactors) {
  Plot plot;
  plot.y.logarithmic = true;
  plot.series = {{"a", {{0, 1e-6, ""}}, false},
                 {"b", {{1, 1e-4, ""}}, false},
                 {"c", {{2, 1e-2, ""}}, false}};
  std::string svg = PlotSvg(plot);
  std::vector<double> heights;
  for (size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos;
       ++at) {
    heights.push_back(ValueOf(svg.substr(at), "circle", "cy"));
  }
  ASSERT_EQ(heights.size(), 3u);
  EXPECT_NEAR(heights[0] - heights[1], heights[1] - heights[2], 0.02);
  for (const char* name : {">a<", ">b<", ">c<"}) {
    EXPECT_EQ(Count(svg, name), 1u) << name;
  }
}

TEST(PlotSvgTest, ValuesThatHaveNoPlaceAreLeftOut) {
  Plot plot;
  plot.y.logarithmic = true;
  plot.series = {{"s",
                  {{1, 0, ""},
                   {2, std::numeric_limits<double>::quiet_NaN(), ""},
                   {3, 1, ""},
                   {4, std::numeric_limits<double>::infinity(), ""},
                   {5, 2, ""}}}};
  const std::string svg = PlotSvg(plot);
  std::smatch points;
  ASSERT_TRUE(
      std::regex_search(svg, points, std::regex("points=\"([^\"]*)\"")));
  EXPECT_EQ(Count(points[1], ","), 2u);
  EXPECT_EQ(Count(svg, "nan"), 0u);
  EXPECT_EQ(Count(svg, "inf"), 0u);
}

TEST(PlotSvgTest, LabelsOfNearDotsDoNotMeet) {
  Plot plot;
  plot.series = {
      {"",
       {{0, 0, ""}, {100, 100, "q4_0"}, {100, 100, "q4_1"}, {50, 50, "alone"}},
       false}};
  const std::string svg = PlotSvg(plot);
  const std::regex pattern("x=\"([0-9.]+)\" y=\"([0-9.]+)\"[^>]*>(q4_.|alone)");
  std::vector<std::pair<double, double>> places;
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end;
       ++at) {
    places.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  }
  ASSERT_EQ(places.size(), 3u);
  const bool apart = std::fabs(places[0].second - places[1].second) >= 14 ||
                     std::fabs(places[0].first - places[1].first) >= 4 * 6;
  EXPECT_TRUE(apart) << svg;
}

TEST(PlotSvgTest, NoValuesAreTold) {
  EXPECT_NE(PlotSvg({}).find("no values to show"), std::string::npos);
}

TEST(PlotSvgTest, NamesCannotBreakThePicture) {
  Plot plot;
  plot.title = "a<b>&\"c\"";
  plot.series = {{"x\n<script>", {{1, 1, "]]>"}}, false}};
  const std::string svg = PlotSvg(plot);
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;&quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find("]]>"), std::string::npos);
}

TEST(PlotSvgTest, EveryPointLiesWithinThePicture) {
  for (const bool logarithmic : {false, true}) {
    for (const double value : {1e-12, 1.0, 5e9}) {
      Plot plot;
      plot.x.logarithmic = plot.y.logarithmic = logarithmic;
      plot.series = {{"", {{value, value, "alone"}}, false}};
      const std::string svg = PlotSvg(plot);
      EXPECT_GT(ValueOf(svg, "circle", "cx"), 80) << value;
      EXPECT_LT(ValueOf(svg, "circle", "cx"), 700) << value;
      EXPECT_GT(ValueOf(svg, "circle", "cy"), 40) << value;
      EXPECT_LT(ValueOf(svg, "circle", "cy"), 380) << value;
    }
  }
}

}  // namespace
}  // namespace sluice::eval
