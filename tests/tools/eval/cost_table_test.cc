#include "common/tools/eval/cost_table.h"

#include <gtest/gtest.h>

#include "tests/tools/eval/chain_endpoint.h"

namespace sluice::eval {
namespace {

// A form whose positions have these divergences, from position 1 on.
CostRow Form(const std::string& name, uint64_t bytes,
             const std::vector<double>& divergences) {
  PromptComparison prompt;
  prompt.name = "p";
  for (size_t i = 0; i < divergences.size(); ++i) {
    prompt.positions.push_back({i + 1, divergences[i], divergences[i], i != 0});
  }
  prompt.greedy_given = true;
  prompt.greedy = 10;
  prompt.greedy_same = 10;
  CostRow row;
  row.form = name;
  row.bytes = bytes;
  row.found.prompts = {prompt};
  return row;
}

TEST(CostTableTest, ARowTellsSizeAgreementAndDivergence) {
  CostRow small = Form("q4_0", 25'000'000, {0.5, 0.1});
  small.found.prompts[0].greedy_same = 4;
  small.tokens_per_s = 12.34;
  const std::string table =
      CostTable({Form("f32", 100'000'000, {0, 0, 0, 0}), small});
  EXPECT_NE(table.find("| f32 | 100.0 | 100 % | 10 of 10 | none parts | "
                       "75.00 % | 0 | 0 | 0 |"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("| q4_0 | 25.0 | 25.00 % | 4 of 10 | 1 of 1 part, first "
                       "at token 4 of p | 50.00 % | 3.0e-01 | 5.0e-01 | "
                       "5.0e-01 |"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("| 12.3 |"), std::string::npos) << table;
}

TEST(CostTableTest, WhatIsNotKnownIsNotShown) {
  CostRow row = Form("x", 0, {});
  row.found.prompts[0].greedy_given = false;
  const std::string table = CostTable({row});
  EXPECT_NE(table.find("| x | - | - | 10 of 10 | - | - | - | - | - | 0 | - | - "
                       "|"),
            std::string::npos)
      << table;
}

TEST(CostPlotTest, AFormIsAPointByItsSizeAndMean) {
  const Plot plot =
      CostPlot({Form("f32", 4'000'000, {1, 3}), Form("unknown", 0, {1}),
                Form("q8_0", 1'000'000, {5})});
  ASSERT_EQ(plot.series.size(), 1u);
  const auto& points = plot.series[0].points;
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].x, 4);
  EXPECT_EQ(points[0].y, 2);
  EXPECT_EQ(points[1].label, "q8_0");
}

TEST(DivergenceByPositionTest, FarPositionsAreTakenTogether) {
  std::vector<double> divergences(4096, 2);
  divergences[0] = 8;
  const Plot plot = DivergenceByPosition({Form("q8_0", 1, divergences)});
  const auto& points = plot.series.at(0).points;
  EXPECT_EQ(points[0].x, 1);
  EXPECT_EQ(points[0].y, 8);
  EXPECT_LT(points.size(), 60u);
  EXPECT_GT(points.size(), 20u);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].x, points[i - 1].x);
    EXPECT_EQ(points[i].y, 2);
  }
}

TEST(ErrorByPositionTest, MeanAndLargestAreLines) {
  Comparison found = Form("x", 1, {1, 1, 1}).found;
  found.prompts.push_back(found.prompts[0]);
  found.prompts[1].positions[0].logprob = -3;
  const Plot plot = ErrorByPosition(found);
  ASSERT_EQ(plot.series.size(), 3u);
  EXPECT_EQ(plot.series[0].points[0].y, 2);
  EXPECT_EQ(plot.series[1].points[0].y, 3);
  EXPECT_EQ(plot.series[2].points[0].y, 1);
}

TEST(MeasureRateTest, AnEndpointThatAnswersHasARate) {
  const ChainEndpoint endpoint({}, 100);
  const auto rate = MeasureRate(EvalApi(endpoint.url(), "chain"), "[1]", 40);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GE(*rate, 0);
}

}  // namespace
}  // namespace sluice::eval
